"""The official SDK, unmodified, against Trackside: python sdk_quickstart.py [credentials.json]"""

import json
import sys
import time
from pathlib import Path

import huaweicloudsdkmodelarts.v1 as ma
from huaweicloudsdkcore.auth.credentials import BasicCredentials

file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.home() / ".trackside" / "credentials.json"
keys = json.loads(file.read_text())
who = BasicCredentials(keys["access_key"], keys["secret_key"], keys["project_id"])
client = ma.ModelArtsClient.new_builder().with_credentials(who).with_endpoint(keys["endpoint"]).build()

job = ma.Job(
    kind="job",
    metadata=ma.JobMetadata(name=f"quickstart-{int(time.time())}"),
    algorithm=ma.JobAlgorithm(command='echo "worker $VC_TASK_INDEX of $VC_WORKER_NUM"; sleep 3'),
    spec=ma.Spec(resource=ma.SpecResource(node_count=2)),
)
job_id = client.create_training_job(ma.CreateTrainingJobRequest(body=job)).metadata.id
print("created", job_id)

while True:
    details = client.show_training_job_details(ma.ShowTrainingJobDetailsRequest(job_id))
    if details.status.phase in ("Completed", "Failed", "Terminated", "Abnormal"):
        break
    time.sleep(0.5)
print(details.status.phase, "after", details.status.duration, "ms on", details.spec.resource.flavor_id)

for task in details.status.tasks:
    usage = client.show_training_job_metrics(ma.ShowTrainingJobMetricsRequest(job_id, task))
    print(task, {metric.metric: metric.value for metric in usage.metrics})
    log = client.show_training_job_logs_preview(ma.ShowTrainingJobLogsPreviewRequest(job_id, task))
    print(task, "said", log.content.strip())
