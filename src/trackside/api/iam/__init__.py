"""The corner of the identity service that the SDK calls by itself: finding the project of a region."""
