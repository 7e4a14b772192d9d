"""The contract of the document store, on every database."""

import pytest

from trackside.domain.errors import Invalid, NotFound
from trackside.domain.job import ProjectId
from trackside.persistence.stores import open_stores


@pytest.mark.anyio
@pytest.mark.parametrize("anything", [{}, {"a": [1, None, "ü"], "b": {"c": 1.5}}])
async def test_what_is_put_comes_back_and_stays(database_url: str, anything: dict[str, object]) -> None:
    stores = open_stores(database_url)
    await stores.start()
    try:
        project = ProjectId("p1")
        await stores.identities.put_project(project, "one")
        await stores.identities.put_project(ProjectId("p2"), "two")
        documents = stores.documents
        await documents.put(project, "template", "b", anything)
        await documents.put(project, "template", "a", {"n": 1})
        await documents.put(project, "template", "a", {"n": 2})
        await documents.put(ProjectId("p2"), "template", "z", {})
        assert await documents.get(project, "template", "b") == anything
        assert await documents.list(project, "template") == [("a", {"n": 2}), ("b", anything)]
        assert await documents.count(project, "template") == 2
        assert await documents.get(project, "signal", "b") is None
        assert await documents.get(ProjectId("p2"), "template", "b") is None
        await documents.delete(project, "template", "a")
        await documents.delete(project, "template", "never there")
        assert await documents.list(project, "template") == [("b", anything)]
        with pytest.raises(NotFound):
            await documents.put(ProjectId("nobody"), "template", "a", {})
        with pytest.raises(Invalid):
            await documents.put(project, "template", "a\0", {})
    finally:
        stores.close()
    again = open_stores(database_url)
    await again.start()
    try:
        assert await again.documents.get(project, "template", "b") == anything
    finally:
        again.close()
