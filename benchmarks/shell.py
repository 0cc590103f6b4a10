"""A Hotshelf shell that stays open and is asked one statement after the other: any version, rows and seconds."""

import csv
import io
import os
import re
import select
import shlex
import subprocess
import time


class Shell:
    """Gives back the header, the rows and the seconds of a statement; begins anew once it had to be stopped."""

    def __init__(self, command, seconds=600):
        self.command, self.seconds, self.process = command, seconds, None

    def start(self):
        environment = {**os.environ, "HOTSHELF_HISTORY": os.devnull}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(shlex.split(self.command), env=environment, **pipes)
        self.process.stdin.write(b"\\format csv\n")

    def ask(self, sql):
        if not self.process or self.process.poll() is not None:
            self.start()
        text = " ".join(sql.split()).rstrip("; ")
        begun = time.perf_counter()
        self.process.stdin.write(text.encode() + b";\n")
        self.process.stdin.flush()
        said = b""
        while not (end := re.search(rb"(?:^|\n)(?:error[^\n]*\n|[0-9,]+ rows?[^\n]*, [0-9.]+ s\n)$", said)):
            left = begun + self.seconds - time.perf_counter()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.process.kill()
                raise TimeoutError(f"no answer in {self.seconds} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise ChildProcessError(f"the shell ended: {said[-300:].decode()}")
            said += more
        seconds = time.perf_counter() - begun
        if end.group().lstrip().startswith(b"error"):
            raise ValueError(end.group().decode().strip()[:300])
        lines = list(csv.reader(io.StringIO(said[: end.start() + 1].decode())))
        rows = [[field if field != "" else None for field in line] for line in lines[1:]]
        return lines[0] if lines else [], rows, seconds
