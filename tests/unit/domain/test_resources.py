from trackside.domain.resources import GIB, Accelerator, Capacity, Resources, derive_flavors, find_flavor


def test_flavors_double_as_far_as_they_fit_and_end_with_the_whole_machine() -> None:
    flavors = derive_flavors(Capacity(cpu_cores=6, memory_bytes=20 * GIB))
    assert [flavor.id for flavor in flavors] == ["cpu.1c2g", "cpu.2c4g", "cpu.4c8g", "cpu.6c20g"]
    assert flavors[-1].resources == Resources(cpu_cores=6, memory_bytes=20 * GIB)


def test_a_machine_that_is_a_size_itself_is_not_named_twice() -> None:
    assert [f.id for f in derive_flavors(Capacity(cpu_cores=2, memory_bytes=4 * GIB))] == [
        "cpu.1c2g",
        "cpu.2c4g",
    ]


def test_cards_come_in_ones_twos_fours_and_eights_with_their_share() -> None:
    flavors = derive_flavors(Capacity(cpu_cores=16, memory_bytes=64 * GIB, gpus=4, gpu_model="A100"))
    one = find_flavor(flavors, "gpu.1x")
    assert one is not None
    assert one.resources == Resources(
        cpu_cores=4, memory_bytes=16 * GIB, cards=1, accelerator=Accelerator.GPU, card_model="A100"
    )
    assert find_flavor(flavors, "gpu.4x") is not None
    assert find_flavor(flavors, "gpu.8x") is None
    assert find_flavor(flavors, "npu.1x") is None


def test_fitting_counts_every_resource() -> None:
    node = Capacity(cpu_cores=2, memory_bytes=4 * GIB, gpus=1)
    assert node.fits(Resources(cpu_cores=2, memory_bytes=4 * GIB, cards=1, accelerator=Accelerator.GPU))
    assert not node.fits(Resources(cpu_cores=2.1, memory_bytes=GIB))
    assert not node.fits(Resources(cpu_cores=1, memory_bytes=5 * GIB))
    assert not node.fits(Resources(cpu_cores=1, memory_bytes=GIB, cards=1, accelerator=Accelerator.NPU))
    left = node.less(Resources(cpu_cores=0.5, memory_bytes=GIB, cards=1, accelerator=Accelerator.GPU))
    assert (left.cpu_cores, left.memory_bytes, left.gpus) == (1.5, 3 * GIB, 0)


def test_tenths_of_a_core_add_up() -> None:
    free = Capacity(cpu_cores=1, memory_bytes=GIB)
    for _ in range(10):
        assert free.fits(Resources(cpu_cores=0.1, memory_bytes=1))
        free = free.less(Resources(cpu_cores=0.1, memory_bytes=1))
    assert not free.fits(Resources(cpu_cores=0.1, memory_bytes=1))
    assert Resources(cpu_cores=1, memory_bytes=2, cards=1).times(3).cards == 3
