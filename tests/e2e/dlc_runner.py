"""Run by the Python of an environment that has the PAI-DLC SDK and nothing of ours: JSON lines in and out.

Every line asks for one call of the unmodified client: the method, its path arguments and its request in the
vendor's own keys. The answer is the body as the SDK understood it, or the exception it raised.
"""

import inspect
import json
import sys
from typing import Any

from alibabacloud_pai_dlc20201203 import models
from alibabacloud_pai_dlc20201203.client import Client
from alibabacloud_tea_openapi import models as open_api


def call(client: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Make one call and return what came of it."""
    method = getattr(client, asked["method"])
    arguments = list(asked["path"])
    if "request" in inspect.signature(method).parameters:
        name = "".join(word.capitalize() for word in asked["method"].split("_")) + "Request"
        request = getattr(models, name)()
        request.from_map(asked["request"])
        arguments.append(request)
    try:
        response = method(*arguments)
    except Exception as error:  # whatever the SDK raises is what the test wants to know
        return {"error": described(error)}
    return {"body": response.body.to_map(), "status": response.status_code}


def described(error: Exception) -> dict[str, Any]:
    """Return what a caller can learn from an exception of the SDK, old or new."""
    data = getattr(error, "data", None) or {}
    return {
        "class": type(error).__name__,
        "code": getattr(error, "code", None),
        "message": getattr(error, "message", None) or str(error),
        "status": getattr(error, "status_code", None) or getattr(error, "statusCode", None),
        "request_id": getattr(error, "request_id", None) or data.get("RequestId"),
    }


def main() -> None:
    """Answer line by line until the input ends."""
    config = open_api.Config(region_id="local", protocol="http", **json.loads(sys.argv[1]))
    client = Client(config)
    for line in sys.stdin:
        print(json.dumps(call(client, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
