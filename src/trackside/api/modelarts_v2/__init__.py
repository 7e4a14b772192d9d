"""The ModelArts v2 dialect: knows Huawei's JSON for training jobs and nothing of how jobs run."""
