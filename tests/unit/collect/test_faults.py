"""Which readings of cards are faults, and which of them a new process heals."""

import pytest

from trackside.collect.faults import XID_TEXTS, CardFaults, xid_fault
from trackside.domain.evidence import DeviceKind
from trackside.domain.metric import Metric

HBM_ECC = 0x80E01801


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 94])
def test_errors_of_the_application_heal(xid: int) -> None:
    assert xid_fault(0, xid).heals


@pytest.mark.parametrize("xid", [48, 62, 63, 64, 74, 79, 92, 95, 109, 119, 120, 999])
def test_errors_of_the_card_do_not_heal(xid: int) -> None:
    fault = xid_fault(1, xid, "as the driver says")
    assert not fault.heals
    assert (fault.card, fault.kind, fault.code) == (1, DeviceKind.GPU, f"XID {xid}")
    assert fault.text == XID_TEXTS.get(xid, "as the driver says")


def test_an_xid_is_kept_once() -> None:
    faults = CardFaults()
    for card in (0, 0, 1):
        faults.see(card, {Metric.GPU_XID: 79.0})
    assert [(one.card, one.code) for one in faults.found] == [(0, "XID 79"), (1, "XID 79")]


def test_only_memory_errors_since_the_task_began_count() -> None:
    faults = CardFaults()
    faults.see(0, {Metric.GPU_ECC_ERRORS: 7.0})
    faults.see(0, {})
    faults.see(0, {Metric.GPU_ECC_ERRORS: 7.0})
    assert faults.found == ()
    faults.see(0, {Metric.GPU_ECC_ERRORS: 9.0})
    (fault,) = faults.found
    assert (fault.code, fault.heals) == ("ECC", False)
    assert fault.text.endswith("2 since the task began")


def test_error_codes_of_npus_heal_where_their_memory_did() -> None:
    faults = CardFaults()
    faults.see(3, {Metric.NPU_ERROR_CODE: 0.0, Metric.NPU_HEALTHY: 1.0})
    assert faults.found == ()
    faults.see(3, {Metric.NPU_ERROR_CODE: float(HBM_ECC), Metric.NPU_HEALTHY: 0.0})
    (fault,) = faults.found
    assert (fault.card, fault.kind, fault.code, fault.heals) == (3, DeviceKind.NPU, "80E01801", True)


@pytest.mark.parametrize("code", [HBM_ECC, 0x80E01809])
def test_what_was_there_before_or_needs_nothing_is_no_fault(code: int) -> None:
    faults = CardFaults()
    faults.see(0, {Metric.NPU_ERROR_CODE: float(HBM_ECC)})
    faults.see(0, {Metric.NPU_ERROR_CODE: float(code)})
    assert faults.found == ()


def test_a_chip_that_is_no_longer_healthy_is_a_fault() -> None:
    faults = CardFaults()
    faults.see(0, {Metric.NPU_HEALTHY: 0.0})
    faults.see(1, {Metric.NPU_HEALTHY: 1.0})
    faults.see(0, {Metric.NPU_HEALTHY: 0.0})
    assert faults.found == ()
    faults.see(1, {Metric.NPU_HEALTHY: 0.0})
    (fault,) = faults.found
    assert (fault.card, fault.code, fault.heals) == (1, "unhealthy", False)
