"""Knows how job configurations are kept, listed and told: settings under a name, which run nothing."""

import time
from typing import Any

import msgspec

from trackside.api.modelarts_v1.checks import one_of, query_int
from trackside.api.modelarts_v1.listing import ORDERS, PAGE_MAX, PER_PAGE_DEFAULT, PER_PAGE_MAX
from trackside.api.modelarts_v1.sizes import engine_of, flavor_of, given, runtime_of, spec_id_of
from trackside.api.modelarts_v1.translate_job import said
from trackside.api.modelarts_v1.translate_spec import check_settings, node_count
from trackside.api.modelarts_v1.wire_request import ChangeConfigBody, CreateConfigBody, Settings, Wire
from trackside.api.modelarts_v1.wire_response import Answer, ConfigDetail, ConfigList, ConfigSummary
from trackside.api.operation import Call
from trackside.domain.errors import EngineNotFound, FlavorNotFound, NameTaken, NotFound

KIND = "modelarts_v1.config"
CONFIG_TYPES = ("custom", "sample")
SORTS = ("config_name", "config_desc", "create_time")


class Kept(Wire):
    """A configuration as it is stored."""

    create_time: int
    settings: Settings
    config_desc: str = ""


async def create_config(call: Call) -> Answer:
    """Keep a configuration under a name that is not taken."""
    assert isinstance(call.body, CreateConfigBody)
    check_settings(call.body)
    name = call.body.config_name
    if await call.services.documents.get(call.caller, KIND, name) is not None:
        raise NameTaken(f"Config name:{name} is existed")
    await _put(
        call, name, Kept(time.time_ns() // 1_000_000, _settings(call.body), call.body.config_desc or "")
    )
    return Answer()


async def change_config(call: Call) -> Answer:
    """Write a configuration anew; its name and when it was made stay."""
    assert isinstance(call.body, ChangeConfigBody)
    former = await _get(call)
    check_settings(call.body)
    kept = Kept(former.create_time, _settings(call.body), call.body.config_desc or "")
    await _put(call, call.path["config_name"], kept)
    return Answer()


async def list_configs(call: Call) -> ConfigList:
    """List the configurations that match."""
    kind = one_of("config_type", call.query_one("config_type") or "custom", CONFIG_TYPES)
    sort_by = one_of("sortBy", call.query_one("sortBy") or "config_name", SORTS)
    descending = one_of("order", call.query_one("order") or "desc", ORDERS) == "desc"
    limit = query_int(call, "per_page", PER_PAGE_DEFAULT, least=1, most=PER_PAGE_MAX)
    offset = limit * (query_int(call, "page", 1, least=1, most=PAGE_MAX) - 1)
    content = (call.query_one("search_content") or "").casefold()
    documents = await call.services.documents.list(call.caller, KIND) if kind == "custom" else []
    found = [_summary(call, name, msgspec.convert(value, Kept)) for name, value in documents]
    found = [config for config in found if content in config.config_name.casefold()]
    found.sort(key=lambda config: (getattr(config, sort_by), config.config_name), reverse=descending)
    return ConfigList(config_total_count=len(found), configs=found[offset : offset + limit])


async def show_config(call: Call) -> ConfigDetail:
    """Tell everything of a configuration."""
    kept = await _get(call)
    settings = kept.settings
    return ConfigDetail(
        is_success=True,
        config_name=call.path["config_name"],
        config_desc=kept.config_desc,
        create_time=kept.create_time,
        worker_server_num=node_count(settings),
        **said(settings),
        **_engine(call, settings),
        **_size(call, settings),
        pool_id=settings.pool_id,
        pool_name=settings.pool_id,
    )


async def delete_config(call: Call) -> Answer:
    """Forget a configuration."""
    await _get(call)
    await call.services.documents.delete(call.caller, KIND, call.path["config_name"])
    return Answer()


async def _get(call: Call) -> Kept:
    one_of("config_type", call.query_one("config_type") or "custom", CONFIG_TYPES)
    name, value = call.path["config_name"], None
    if call.query_one("config_type") != "sample":  # there are no sample configurations here
        value = await call.services.documents.get(call.caller, KIND, name)
    if value is None:
        raise NotFound(f"there is no configuration called {name!r}")
    return msgspec.convert(value, Kept)


async def _put(call: Call, name: str, kept: Kept) -> None:
    await call.services.documents.put(call.caller, KIND, name, msgspec.to_builtins(kept))


def _settings(body: Settings) -> Settings:
    return Settings(**{name: getattr(body, name) for name in Settings.__struct_fields__})


def _summary(call: Call, name: str, kept: Kept) -> ConfigSummary:
    settings = kept.settings
    return ConfigSummary(
        config_name=name,
        config_desc=kept.config_desc,
        create_time=kept.create_time,
        user_image_url=settings.user_image_url,
        user_command=settings.user_command,
        **_engine(call, settings),
    )


def _engine(call: Call, settings: Settings) -> dict[str, Any]:
    """Describe the engine that is asked for; one that is not on offer any more is told by its number."""
    try:
        choice = runtime_of(settings, call.services.catalog)
    except EngineNotFound:
        return _asked_engine(settings)
    engine = engine_of(choice, call.services.catalog.runtimes())
    return msgspec.structs.asdict(engine) if engine else _asked_engine(settings)


def _asked_engine(settings: Settings) -> dict[str, Any]:
    text = str(settings.engine_id or "")
    return {"engine_id": int(text)} if text.isdecimal() else {}


def _size(call: Call, settings: Settings) -> dict[str, Any]:
    """Describe the size that is asked for; one that is not on offer any more is left out."""
    try:
        flavor = flavor_of(settings, call.services.catalog)
    except FlavorNotFound:
        return {}
    place = spec_id_of(flavor.id, call.services.catalog.flavors())
    return {"spec_id": place, "spec_code": flavor.id, **given(flavor.resources)}
