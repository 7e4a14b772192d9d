"""Knows which of a task's results go to the object store, and when; refuses to know how they get there."""

from trackside.agent.layout import Layout
from trackside.agent.stage import Staged
from trackside.agent.upload import Uploader, UploadError
from trackside.domain.exchange import Launch


class Deliverer:
    """Upload outputs while a task runs and at its end, and its log where the job wants that."""

    def __init__(self, uploader: Uploader, layout: Layout) -> None:
        self._uploader = uploader
        self._layout = layout

    def begin(self, launch: Launch, staged: Staged) -> None:
        """Begin to upload what the task writes."""
        self._uploader.watch(launch.key, staged.outputs)

    def finish(self, launch: Launch) -> str | None:
        """Upload the rest; return what could not be uploaded. Blocks."""
        problems = []
        for step in (self._finish_outputs, self._finish_log):
            try:
                step(launch)
            except UploadError as error:
                problems.append(str(error))
        return "; ".join(problems) or None

    def _finish_outputs(self, launch: Launch) -> None:
        self._uploader.finish(launch.key)

    def _finish_log(self, launch: Launch) -> None:
        if launch.log_export_url is not None:
            log = self._layout.log_file(launch.key)
            self._uploader.upload_log(launch.key, log, launch.log_export_url)
