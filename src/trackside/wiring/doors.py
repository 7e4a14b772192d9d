"""Who may come in and through which door: authentication, permissions, and the dialects."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trackside import bootstrap
from trackside.api.authenticate import Authenticator
from trackside.api.authenticate_acs import AcsAuthenticator
from trackside.api.iam import routes as iam
from trackside.api.modelarts_v1 import errors as v1_errors
from trackside.api.modelarts_v1 import routes as v1
from trackside.api.modelarts_v2 import errors as v2_errors
from trackside.api.modelarts_v2 import pool_errors
from trackside.api.modelarts_v2 import routes as v2
from trackside.api.modelarts_v2.routes_pools import POOL_OPERATIONS
from trackside.api.native import access, downloads
from trackside.api.native import chaos as native_chaos
from trackside.api.native import notify as native_notify
from trackside.api.native import policies as native_policies
from trackside.api.native import pools as native_pools
from trackside.api.native import routes as native
from trackside.api.native import stacks as native_stacks
from trackside.api.native.agent_link import AgentLink
from trackside.api.operation import Dialect, Operation
from trackside.api.pai_dlc import errors as dlc_errors
from trackside.api.pai_dlc import routes as dlc
from trackside.auth.directory import Directory
from trackside.auth.nonces import Nonces
from trackside.auth.temporary import TemporaryKeys
from trackside.config import Settings
from trackside.domain.identity import Caller, User
from trackside.engine.local import LocalEngine
from trackside.persistence.stores import Stores
from trackside.ports import Clock
from trackside.service import Documents, Tokens
from trackside.service.chaos import Chaos
from trackside.service.policies import Policies
from trackside.service.things import job_in_path


@dataclass(frozen=True, slots=True)
class Access:
    """What tells who calls, and what they may do."""

    directory: Directory
    policies: Policies
    temporary: TemporaryKeys
    signed: Authenticator
    acs: AcsAuthenticator

    def users_changed(self, users: Sequence[User]) -> None:
        """Take over who there is."""
        self.directory.replace(users)
        self.policies.users_changed(users)

    def allowed(self, caller: Caller, operation: Operation, path: Mapping[str, str]) -> bool:
        """Say yes, or raise Forbidden; that a caller stays in its project is checked with the signature."""
        self.policies.check(caller, operation.action, path)
        return True


def build_access(
    settings: Settings,
    stores: Stores,
    documents: Documents,
    tokens: Tokens,
    link_key: bytes,
    clock: Clock,
) -> Access:
    """Put together what tells who calls."""
    directory, policies = Directory(), Policies(documents=documents, store=stores.jobs)
    window = settings.signature_window_seconds
    temporary = TemporaryKeys(
        key=hmac.digest(link_key, b"temporary keys", "sha256"),
        now_ms=clock.now_ms,
        caller_named=policies.caller_named,
    )
    signed = Authenticator(directory, now_ms=clock.now_ms, window_seconds=window, temporary=temporary)
    acs = AcsAuthenticator(
        directory,
        nonces=Nonces(now_ms=clock.now_ms, window_seconds=window),
        temporary=temporary,
        open_token=tokens.open,
        caller_named=policies.caller_named,
        job_in_path=partial(job_in_path, stores.jobs),
        now_ms=clock.now_ms,
        window_seconds=window,
        allow_roa_sha1=settings.allow_roa_sha1,
    )
    return Access(directory, policies, temporary, signed, acs)


def build_dialects(
    data_dir: Path, who: Access, engine: LocalEngine, link: AgentLink, chaos: Chaos
) -> Sequence[Dialect]:
    """Return every dialect with its operations and its way to tell who calls."""
    signed = who.signed
    agent = access.agent_authenticator(bootstrap.kept_secret(data_dir / "agent" / "token"))
    huawei = partial(Dialect, authenticate=signed, error=v2_errors.error, unexpected=v2_errors.unexpected)
    own = partial(Dialect, error=access.error, unexpected=access.unexpected)
    return (
        huawei(name="modelarts_v2", title="ModelArts v2", operations=v2.JOB_OPERATIONS),
        huawei(
            name="modelarts_v2_pools",
            title="ModelArts v2 pools",
            operations=POOL_OPERATIONS,
            error=pool_errors.error,
        ),
        Dialect(
            name="modelarts_v1",
            title="ModelArts v1",
            operations=v1.operations(engine.nodes),
            authenticate=signed,
            error=v1_errors.error,
            unexpected=v1_errors.unexpected,
        ),
        Dialect(
            name="pai_dlc",
            title="PAI-DLC",
            operations=dlc.OPERATIONS,
            authenticate=who.acs,
            error=dlc_errors.error,
            unexpected=dlc_errors.unexpected,
            request_id_header="x-acs-request-id",
        ),
        huawei(name="iam", title="Identity", operations=iam.OPERATIONS),
        own(
            name="native",
            title="Trackside",
            operations=(
                *native.operations(engine.nodes),
                *native_policies.operations(who.policies, who.temporary),
                *native_pools.OPERATIONS,
                *native_notify.OPERATIONS,
                *native_stacks.OPERATIONS,
                *native_chaos.operations(chaos),
            ),
            authenticate=signed,
        ),
        own(name="agent", title="Agents", operations=link.operations(), authenticate=agent),
        own(name="links", title="Links", operations=downloads.OPERATIONS, authenticate=downloads.link_holder),
    )
