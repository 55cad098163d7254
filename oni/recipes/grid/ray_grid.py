"""Train runs over a Ray cluster, as many at once as it has room for.

A run is one Ray task. It tells of its progress through an actor, and leaves everything else in its run folder, so a
task whose worker dies is submitted again and continues from the checkpoint there. Ray's own retries are off: a second
attempt must know that it is one.
"""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from oni.files import make_folder
from oni.recipes.progress.mailbox import Mailbox, Messenger
from oni.recipes.training.interruption import Interrupted, catch_signals, how_to_continue

if TYPE_CHECKING:
    from oni.recipes.grid.jobs import Engine, Job
    from oni.recipes.progress.overall import OneRun, Overall

__all__ = ["connect", "train_on_ray"]

LOOK_SECONDS = 0.2
"""Between two looks at the runs."""
CONNECT_SECONDS = 30
DEATHS = 5
"""So many workers in a row may die over one run, each of them early, before it counts as the run's own fault."""
EARLY_SECONDS = 600.0
OBJECT_STORE_BYTES = 100 * 2**20
"""Ray keeps nothing but short messages and results in it; its own choice is a third of the memory."""
NO_TOKEN = (
    "the Ray cluster wants its token, and Ray knows none or another one here; pass it as Ray's documentation says: "
    "https://docs.ray.io/en/latest/ray-security/token-auth.html"
)

T = TypeVar("T")


def train_on_ray(
    jobs: Sequence[Job[T]], overall: Overall, engine: Engine, folder: Path, accelerator: str, *, resumes: bool
) -> list[T]:
    """Train all runs; see :func:`oni.recipes.grid.run_jobs.run_jobs`."""
    runs = [overall.begin(job.heading, job.step_cost) for job in jobs]
    # What shows the runs has the standard output of before; inside, Ray prints its own words about dead workers there.
    with redirect_stdout(io.StringIO()), connect(engine, overall), mark_folder(folder) as mark:
        return Grid(jobs, runs, overall, mark, *check_room(engine, accelerator), resumes=resumes).train()


@contextmanager
def connect(engine: Engine, overall: Overall) -> Iterator[None]:
    """Be connected to Ray inside: as this process already is, to a running cluster, or to a new one here."""
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quietly = {"log_to_driver": False, "logging_level": "ERROR"}
    if engine.address is None:
        overall.note("starting Ray on this machine")
        ray.init("local", include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **quietly)
    else:
        overall.note(f"connecting to Ray at {engine.address}")
        check_address(engine.address)
        ray.init(engine.address, **quietly)
    try:
        yield
    finally:
        ray.shutdown()


def check_address(address: str) -> None:
    """Refuse an address at which no Ray cluster answers; Ray itself would wait for it without end."""
    remedy = "start one with ray start --head, or leave out --address to use this machine alone"
    host, _, port = address.rpartition(":")
    if address != "auto":
        if not host or not port.isdecimal() or "/" in host:
            raise ValueError(f"--address must be auto or HOST:PORT, got {address!r}")
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise ValueError(f"--address {address}: no answer ({error}); {remedy}") from None
    # Whatever else listens there keeps ray.init waiting where no signal reaches it, so a process of its own tries it.
    code = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR')"
    try:
        trial = subprocess.run([sys.executable, "-c", code, address], capture_output=True, timeout=CONNECT_SECONDS)
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"--address {address}: Ray did not answer within {CONNECT_SECONDS} seconds; {remedy}"
        ) from None
    if trial.returncode:
        printed = trial.stderr.decode(errors="replace")
        if "AuthenticationError" in printed:
            raise ValueError(f"--address {address}: {NO_TOKEN}")
        raise ValueError(f"--address {address}: {' '.join(printed.strip().splitlines()[-1:])}; {remedy}")


@contextmanager
def mark_folder(folder: Path) -> Iterator[Path]:
    """A file in the folder of runs, by which a worker sees that the folder is the same for all."""
    make_folder(folder)
    with NamedTemporaryFile(dir=folder.resolve(), prefix=".grid-") as mark:
        yield Path(mark.name)


def check_room(engine: Engine, accelerator: str) -> tuple[int, float]:
    """How many threads and GPUs a run gets; an error if no machine of the cluster has so many."""
    import ray
    import torch

    threads = torch.get_num_threads()
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most_gpus = max((machine.get("GPU", 0.0) for machine in machines), default=0.0)
    gpus = engine.gpus_per_run
    if gpus is None:
        gpus = 0.0 if accelerator == "cpu" else min(most_gpus, 1.0)
    if gpus > most_gpus:
        raise ValueError(f"--gpus-per-run {gpus:g}: no machine of this Ray cluster has a GPU; leave it out to use CPUs")
    if not any(machine.get("CPU", 0.0) >= threads and machine.get("GPU", 0.0) >= gpus for machine in machines):
        with_gpu = " with a GPU" if gpus else ""
        raise ValueError(
            f"a run needs {threads} threads, but no machine of this Ray cluster{with_gpu} has that many CPUs; "
            "pass a smaller --threads"
        )
    return threads, gpus


def train_here(number: int, pickled: bytes, resume: bool, threads: int, gpus: float, mark: Path, mailbox: Any) -> Any:
    """Train a run in this Ray worker."""
    import ray

    messenger = Messenger(number, mailbox.put.remote, lambda receipt: ray.get(receipt, timeout=CONNECT_SECONDS))
    # From before torch is loaded, which takes seconds, so that a request to stop is never lost.
    with catch_signals():
        try:
            if not mark.exists():
                raise ValueError(
                    f"{socket.gethostname()} can't access {mark.parent}: the folder of runs must be on a file system "
                    "that all machines of the cluster share; pass such a folder with --out or --runs"
                )
            import torch

            from oni.recipes.grid.jobs import Attempt

            torch.set_num_threads(threads)
            job: Job[Any] = ray.cloudpickle.loads(pickled)
            return job.train(Attempt(messenger, resume, "cuda" if gpus else "cpu", threads))
        finally:
            messenger.close()


class Grid(Generic[T]):
    """The state of all runs: waiting, submitted or finished."""

    def __init__(
        self,
        jobs: Sequence[Job[T]],
        runs: Sequence[OneRun],
        overall: Overall,
        mark: Path,
        threads: int,
        gpus: float,
        *,
        resumes: bool,
    ) -> None:
        import ray

        self.ray, self.jobs, self.runs, self.overall = ray, jobs, runs, overall
        self.results: dict[int, T] = {}
        self.waiting = dict.fromkeys(range(len(jobs)), 0.0)
        """When each waiting run may be submitted."""
        self.submitted: dict[Any, int] = {}
        """The number of the run of each Ray task."""
        self.begun: dict[int, float] = {}
        """When a worker started each of them."""
        self.deaths = [0] * len(jobs)
        self.died = [False] * len(jobs)
        self.mailbox = ray.remote(num_cpus=0, max_restarts=-1)(Mailbox).remote()
        self.task = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=0)(train_here)
        self.stopped = f"stopped; {how_to_continue(resumes)}"
        self.common = (threads, gpus, mark, self.mailbox)

    def train(self) -> list[T]:
        """Train all of them. If this ends early, running ones write a checkpoint first."""
        with catch_signals() as stop:
            try:
                while len(self.results) < len(self.jobs):
                    if stop.asked:
                        raise Interrupted(self.stopped)
                    self.submit()
                    for ended in self.look():
                        self.collect(ended)
            except BaseException:
                self.stop()
                raise
        return [self.results[number] for number in range(len(self.jobs))]

    def submit(self) -> None:
        """Submit the runs whose time has come; Ray queues them until there is room."""
        now = time.monotonic()
        for number in [number for number, ready in self.waiting.items() if ready <= now]:
            del self.waiting[number]
            pickled = self.ray.cloudpickle.dumps(self.jobs[number])
            self.submitted[self.task.remote(number, pickled, self.died[number], *self.common)] = number

    def look(self) -> list[Any]:
        """Wait a moment, show the progress that runs have sent, and return the tasks that have ended."""
        ended: list[Any] = []
        if self.submitted:
            ended, _ = self.ray.wait(list(self.submitted), num_returns=len(self.submitted), timeout=LOOK_SECONDS)
        else:
            time.sleep(LOOK_SECONDS)
        # If the actor died, Ray restarts it empty, and a few messages are lost.
        with suppress(self.ray.exceptions.RayError):
            for number, method, arguments in self.ray.get(self.mailbox.fetch.remote(), timeout=CONNECT_SECONDS):
                if method == "begin":
                    self.begun[number] = time.monotonic()
                elif method == "other":
                    getattr(self.runs[number].for_other_work(), arguments[0])(*arguments[1:])
                else:
                    getattr(self.runs[number], method)(*arguments)
        return ended

    def collect(self, ended: Any) -> None:
        """Take the result of a run, or queue the run again if it can be retried.

        Raises:
            Exception: what the run itself raised.
        """
        from oni.recipes.grid.jobs import POLL_SECONDS
        from oni.recipes.run_files.run_folder import Busy

        number, errors = self.submitted.pop(ended), self.ray.exceptions
        try:
            self.results[number] = self.ray.get(ended)
        except errors.TaskCancelledError:
            raise Interrupted(self.stopped) from None
        except errors.RayTaskError as error:
            if not isinstance(error.cause, Busy):
                raise error.cause from error
            self.waiting[number] = time.monotonic() + POLL_SECONDS
        except errors.RayError as error:
            self.try_again(number, error)
        else:
            self.runs[number].finish()

    def try_again(self, number: int, error: Exception) -> None:
        """Queue a run again whose worker died."""
        run, reason = self.runs[number], " ".join(str(error).split())
        lived = time.monotonic() - self.begun.pop(number, time.monotonic())
        self.deaths[number] = self.deaths[number] + 1 if lived < EARLY_SECONDS else 1
        run.end("its worker died; it is tried again")
        if self.deaths[number] >= DEATHS:
            raise OSError(f"{run.heading}: {DEATHS} workers died on this run, one after the other; the last: {reason}")
        run.warn(f"the worker of {run.heading} died ({reason})")
        self.died[number] = True
        self.waiting[number] = 0.0

    def stop(self) -> None:
        """Have every run that trains write a checkpoint, and wait for it."""
        if self.submitted:
            self.overall.note("stopping: each run that trains writes a checkpoint; Ctrl-C again ends them at once")
        for task in self.submitted:
            self.ray.cancel(task, force=False)
        while self.submitted:
            for ended in self.look():
                del self.submitted[ended]
