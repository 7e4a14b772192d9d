"""Knows how the stores are put together on one database."""

from dataclasses import dataclass

from trackside.persistence.cache import JobCache
from trackside.persistence.documents import SqlDocumentStore
from trackside.persistence.engine import (
    parse_url,
    prepare_file,
    reader_engine,
    translated,
    writer_engine,
)
from trackside.persistence.identities import SqlIdentityStore
from trackside.persistence.jobs import SqlJobStore
from trackside.persistence.migrate import migrate
from trackside.persistence.outbox import SqlOutbox, SqlTopicStore
from trackside.persistence.pools import SqlPoolStore
from trackside.persistence.reader import Reader
from trackside.persistence.writer import Writer
from trackside.ports import DocumentStore, IdentityStore, JobStore, Outbox, PoolStore, TopicStore


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of one database; one process at a time should own it."""

    jobs: JobStore
    identities: IdentityStore
    documents: DocumentStore
    pools: PoolStore
    topics: TopicStore
    outbox: Outbox
    writer: Writer
    reader: Reader

    async def start(self) -> None:
        """Begin to take writes. Before it, writes wait."""
        self.writer.start()

    def close(self) -> None:
        """Finish the writes that wait and close every connection."""
        self.writer.close()
        self.reader.close()


def open_stores(url: str) -> Stores:
    """Open the database, bring its schema up to date and load the unfinished jobs."""
    address = parse_url(url)
    prepare_file(address)
    engine = writer_engine(address)
    cache = JobCache()
    writer = Writer(engine, address, cache)
    reader = Reader(reader_engine(address), address)
    try:
        with translated(address):
            migrate(engine)
        writer.connect()
    except BaseException:
        writer.close()
        reader.close()
        raise
    return Stores(
        jobs=SqlJobStore(writer, reader, cache),
        identities=SqlIdentityStore(writer, reader),
        documents=SqlDocumentStore(writer, reader),
        pools=SqlPoolStore(writer, reader),
        topics=SqlTopicStore(writer, reader),
        outbox=SqlOutbox(writer, reader),
        writer=writer,
        reader=reader,
    )
