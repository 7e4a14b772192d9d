"""Knows job templates: bodies of CreateJob kept under a name, in versions, with rules for changes."""

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from trackside.api.operation import Call
from trackside.api.pai_dlc.checks import chosen, now_ms, one_of, page, time_text
from trackside.api.pai_dlc.search import ORDERS
from trackside.api.pai_dlc.turns import alone
from trackside.api.pai_dlc.wire_create import CreateJobBody
from trackside.api.pai_dlc.wire_reports import (
    DefaultVersion,
    TemplateAnswer,
    TemplateBody,
    TemplateChange,
    TemplateChanged,
    TemplateGone,
    TemplateHead,
    TemplateMade,
    TemplatePage,
    TemplateVersion,
)
from trackside.domain.errors import Invalid, NotFound

KIND = "pai_dlc.template"
PAGE_SIZE_DEFAULT = 20
VERSIONS_MAX = 100
RULES = ("locked", "overridable", "required")
SORT_KEYS = {
    "GmtCreateTime": "gmt_create_time",
    "GmtModifyTime": "gmt_modify_time",
    "TemplateName": "template_name",
    "LastUsedTime": "last_used_time",
}
_PATH = re.compile(r"\$(?:\.[A-Za-z][A-Za-z0-9]*)+")


class Template(TemplateHead, kw_only=True):
    """A template as it is kept."""

    versions: list[TemplateVersion]


async def create_template(call: Call) -> TemplateMade:
    """Keep a new template."""
    body = call.body
    assert isinstance(body, TemplateBody)
    if not body.template_name:
        raise Invalid("TemplateName is missing")
    now = time_text(now_ms())
    template = Template(
        template_id=f"tpl{secrets.token_hex(8)}",
        template_name=body.template_name,
        workspace_id=body.workspace_id or "0",
        default_version=1,
        user_id=call.caller.user,
        tenant_id=call.caller.project_id,
        gmt_create_time=now,
        gmt_modify_time=now,
        modified_by=call.caller.user,
        description=body.description,
        metadata=body.metadata,
        versions=[_version(call, 1, body.content, body.constraints, now)],
    )
    await _keep(call, template)
    return TemplateMade(**_head(template), version=1, request_id=call.request_id)


async def get_template(call: Call) -> TemplateAnswer:
    """Return a template with the version asked for, the default one, or all."""
    template = await _path_template(call)
    wanted = call.query_one("Version")
    versions = template.versions
    if wanted != "all":
        versions = [_pick(template, _version_number(wanted) if wanted else template.default_version)]
    return TemplateAnswer(
        **_head(template), versions=versions, total_count=len(versions), request_id=call.request_id
    )


async def list_templates(call: Call) -> TemplatePage:
    """Return the templates that match."""
    offset, limit = page(call, size=PAGE_SIZE_DEFAULT)
    key = SORT_KEYS[chosen(call, "SortBy", SORT_KEYS, "GmtCreateTime")]
    kept = await call.services.documents.list(call.caller, KIND)
    found = [one for one in (msgspec.convert(value, Template) for _, value in kept) if _matches(call, one)]
    found.sort(
        key=lambda one: (getattr(one, key) or "", one.template_id),
        reverse=chosen(call, "Order", ORDERS, "desc") == "desc",
    )
    return TemplatePage(
        job_templates=[TemplateHead(**_head(one)) for one in found[offset : offset + limit]],
        total_count=len(found),
        page_number=offset // limit + 1,
        page_size=limit,
        request_id=call.request_id,
    )


async def update_template(call: Call) -> TemplateChanged:
    """Change a template; new content makes a new version."""
    body = call.body
    assert isinstance(body, TemplateChange)
    if body.constraints is not None and body.content is None:
        raise Invalid("Constraints can only be changed together with Content")
    async with alone(call):
        template = await _path_template(call)
        number = _changed(call, template, body)
        await _keep(call, template)
    return TemplateChanged(
        default_version=template.default_version,
        gmt_modify_time=template.gmt_modify_time,
        version=number,
        version_created=body.content is not None,
        request_id=call.request_id,
    )


def _changed(call: Call, template: Template, body: TemplateChange) -> int:
    """Change a template as asked and return the number of its newest version."""
    now = time_text(now_ms())
    template.template_name = body.template_name or template.template_name
    template.description = template.description if body.description is None else body.description
    template.metadata = template.metadata if body.metadata is None else body.metadata
    number = template.versions[-1].version
    if body.content is not None:
        if len(template.versions) >= VERSIONS_MAX:
            raise Invalid(f"a template may have at most {VERSIONS_MAX} versions")
        number += 1
        template.versions.append(_version(call, number, body.content, body.constraints, now))
        template.default_version = number if body.set_as_default else template.default_version
    template.gmt_modify_time, template.modified_by = now, call.caller.user
    return number


async def set_default_version(call: Call) -> TemplateChanged:
    """Say which version of a template counts when none is named."""
    assert isinstance(call.body, DefaultVersion)
    if call.body.version is None:
        raise Invalid("Version is missing")
    async with alone(call):
        template = await _path_template(call)
        template.default_version = _pick(template, call.body.version).version
        template.gmt_modify_time, template.modified_by = time_text(now_ms()), call.caller.user
        await _keep(call, template)
    return TemplateChanged(
        default_version=template.default_version,
        gmt_modify_time=template.gmt_modify_time,
        request_id=call.request_id,
    )


async def delete_template(call: Call) -> TemplateGone:
    """Delete a template; jobs made from it stay."""
    template = await _path_template(call)
    await call.services.documents.delete(call.caller, KIND, template.template_id)
    return TemplateGone(template_id=template.template_id, request_id=call.request_id)


async def filled(call: Call, body: CreateJobBody) -> CreateJobBody:
    """Return the body with what it leaves out taken from its template, if the template's rules allow it."""
    template = await _find(call, body.template_id or "")
    version = _pick(template, body.template_version or template.default_version)
    given = {name: value for name, value in msgspec.to_builtins(body).items() if value not in ([], None)}
    for path, rule in (version.constraints or {}).items():
        _check_rule(path, rule, given, version.content)
    whole = {
        **version.content,
        **given,
        "TemplateId": template.template_id,
        "TemplateVersion": version.version,
    }
    return _as_body(whole, "the template and the request together")


async def used(call: Call, template_id: str) -> None:
    """Note that a job was just made from a template."""
    async with alone(call):
        template = await _find(call, template_id)
        template.last_used_time = time_text(now_ms())
        await _keep(call, template)


def _check_rule(path: str, rule: str, given: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    asked = _at(given, path)
    if rule == "required" and asked is None:
        raise Invalid(f"the template requires {path[2:]} to be given")
    if rule == "locked" and asked is not None and asked != _at(content, path):
        raise Invalid(f"the template does not allow {path[2:]} to be changed")


def _at(value: Any, path: str) -> Any:
    for name in path.split(".")[1:]:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _version(
    call: Call, number: int, content: str | dict[str, Any] | None, rules: Mapping[str, Any] | None, now: str
) -> TemplateVersion:
    for path, rule in (rules or {}).items():
        if not _PATH.fullmatch(path):
            raise Invalid(
                f"Constraints: {path[:80]!r} is not a path such as $.UserCommand or $.UserVpc.VpcId"
            )
        one_of(f"Constraints: {path[:80]}", str(rule), RULES)
    return TemplateVersion(
        version=number,
        content=_content(content),
        constraints=dict(rules) if rules else None,
        created_by=call.caller.user,
        gmt_create_time=now,
    )


def _content(given: str | dict[str, Any] | None) -> dict[str, Any]:
    if not given:
        raise Invalid("Content is missing: give the body of a CreateJob")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise Invalid("Content must be a JSON object") from None
    if not isinstance(given, dict):
        raise Invalid("Content must be a JSON object")
    _as_body(given, "Content")
    return given


def _as_body(whole: Mapping[str, Any], what: str) -> CreateJobBody:
    try:
        return msgspec.convert(whole, CreateJobBody)
    except msgspec.ValidationError as error:
        raise Invalid(f"{what}: {str(error).replace('`', '')}") from None


def _version_number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise Invalid(f"Version must be a number or all, not {text[:64]!r}")
    return int(text)


def _pick(template: Template, number: int) -> TemplateVersion:
    found = next((one for one in template.versions if one.version == number), None)
    if found is None:
        raise NotFound(f"the template {template.template_id} has no version {number}")
    return found


def _matches(call: Call, template: Template) -> bool:
    def contains(name: str, text: str | None) -> bool:
        wanted = call.query_one(name)
        return wanted is None or wanted.lower() in (text or "").lower()

    exact: Iterator[tuple[str, str]] = iter(
        (
            ("TemplateId", template.template_id),
            ("UserId", template.user_id),
            ("WorkspaceId", template.workspace_id),
        )
    )
    return (
        all(call.query_one(name) in (None, value) for name, value in exact)
        and contains("TemplateName", template.template_name)
        and contains("Description", template.description)
    )


def _head(template: Template) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(template).items() if name != "versions"}


async def _path_template(call: Call) -> Template:
    return await _find(call, call.path["TemplateId"])


async def _find(call: Call, template_id: str) -> Template:
    found = await call.services.documents.get(call.caller, KIND, template_id)
    if found is None:
        raise NotFound(f"there is no job template {template_id[:80]!r} in this project")
    return msgspec.convert(found, Template)


async def _keep(call: Call, template: Template) -> None:
    value: dict[str, Any] = msgspec.to_builtins(template)
    await call.services.documents.put(call.caller, KIND, template.template_id, value)
