"""Ordinary work of Python programs. Says "python work done" at its end.

    work.py TIMES PORT UNIX

TIMES 1 is for a slow machine: what starts Python anew is left out.
"""
import asyncio
import compileall
import concurrent.futures
import ctypes
import fcntl
import glob
import http.server
import json
import logging.handlers
import mmap
import multiprocessing
import multiprocessing.shared_memory
import os
import pathlib
import pickle
import selectors
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request
import uuid
import venv
import zipfile

TIMES, PORT, UNIX = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1"


def equal(got, want):
    if got != want:
        raise AssertionError(f"got {got!r}, want {want!r}")


def files():
    top = pathlib.Path(tempfile.mkdtemp(dir="."))
    for i in range(TIMES):
        p = top / f"d{i % 7}" / f"f{i}.txt"
        p.parent.mkdir(exist_ok=True)
        p.write_text(f"{i}\n")
    equal(len(glob.glob(str(top / "**/*.txt"), recursive=True)), TIMES)
    shutil.copytree(top, "copied", symlinks=True)
    shutil.move("copied", "moved")
    shutil.make_archive("all", "gztar", "moved")
    with tarfile.open("all.tar.gz") as t:
        t.extractall("extracted", filter="data") if hasattr(tarfile, "data_filter") else t.extractall("extracted")
    equal((pathlib.Path("extracted") / "d0" / "f0.txt").read_text(), "0\n")
    with zipfile.ZipFile("all.zip", "w") as z:
        z.write("moved/d0/f0.txt")
    shutil.copy2("all.zip", "again.zip")
    equal(os.stat("again.zip").st_mtime_ns // 10**9, os.stat("all.zip").st_mtime_ns // 10**9)
    os.replace("again.zip", "all.zip")
    with tempfile.NamedTemporaryFile(dir=".") as f, open("lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        f.write(b"x" * 10000)
        f.flush()
        os.fsync(f.fileno())
        with mmap.mmap(f.fileno(), 0) as m:
            m[0:3] = b"abc"
            m.flush()
        equal(open(f.name, "rb").read(3), b"abc")
    for d in (top, "moved", "extracted"):
        shutil.rmtree(d)


def processes():
    equal(subprocess.run([sys.executable, "-c", "print(6*7)"], capture_output=True, text=True, check=True).stdout, "42\n")
    equal(subprocess.check_output("echo $((1+1)) | cat", shell=True, text=True), "2\n")
    for kwargs in ({"start_new_session": True}, {"process_group": 0}, {"close_fds": False}, {"preexec_fn": os.setsid}, {"umask": 0o77}):
        equal(subprocess.run(["/app/bin/cat"], input=b"in", stdout=subprocess.PIPE, check=True, **kwargs).stdout, b"in")
    p = subprocess.Popen(["/app/bin/sleep", "100"])
    p.terminate()
    equal(p.wait(), -signal.SIGTERM)
    try:
        subprocess.run(["/app/bin/sleep", "100"], timeout=0.05)
    except subprocess.TimeoutExpired:
        pass
    pid = os.fork()
    if pid == 0:
        os._exit(9)
    equal(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 9)
    pid = os.posix_spawn("/app/bin/true", ["true"], os.environ)
    equal(os.waitpid(pid, 0)[1], 0)
    equal(os.system("exit 3") >> 8, 3)


def square(n):
    return n * n


def double(q, n):
    q.put(n * 2)


def pools():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        equal(sum(pool.map(square, range(TIMES))), sum(n * n for n in range(TIMES)))
    lock = threading.Lock()
    threads = [threading.Thread(target=lambda: lock.acquire() and lock.release()) for _ in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    with multiprocessing.Pool(2) as pool:
        equal(pool.map(square, range(20)), [n * n for n in range(20)])
    for method in ("fork", "spawn")[:TIMES]:
        context = multiprocessing.get_context(method)
        q = context.Queue()
        p = context.Process(target=double, args=(q, 21))
        p.start()
        equal(q.get(timeout=60), 42)
        p.join()
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        equal(list(pool.map(square, [1, 2, 3])), [1, 4, 9])
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=64)
    memory.buf[0] = 5
    memory.close()
    memory.unlink()
    value = multiprocessing.Value("i", 1)
    with value.get_lock():
        value.value += 1
    if UNIX:
        with multiprocessing.Manager() as manager:
            d = manager.dict(a=1)
            equal(d["a"], 1)


def databases():
    for mode in ("delete", "memory"):
        with sqlite3.connect(mode + ".sqlite") as db:
            db.execute("pragma journal_mode=" + mode)
            db.execute("create table t(i integer, s text)")
            db.executemany("insert into t values(?, ?)", ((i, str(i)) for i in range(TIMES * 10)))
        equal(db.execute("select count(*) from t").fetchone()[0], TIMES * 10)
        db.close()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def network():
    with http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for i in range(min(TIMES, 20)):
            with urllib.request.urlopen(f"http://localhost:{PORT}/{i}") as answer:
                equal(json.load(answer), {"path": f"/{i}"})
        server.shutdown()
    a, b = socket.socketpair()
    a.sendall(b"pair")
    equal(b.recv(4), b"pair")
    with selectors.DefaultSelector() as s:
        s.register(a, selectors.EVENT_WRITE)
        equal(len(s.select()), 1)


async def talk():
    async def answer(reader, writer):
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", PORT)
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(b"hello\n")
    equal(await reader.readline(), b"HELLO\n")
    writer.close()
    server.close()
    await server.wait_closed()
    p = await asyncio.create_subprocess_exec("/app/bin/cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    out, _ = await p.communicate(b"through")
    equal(out, b"through")
    equal(await asyncio.to_thread(square, 4), 16)


def environments():
    venv.create("env", symlinks=True, with_pip=False)
    site = glob.glob("env/lib/python3*/site-packages")[0]
    os.makedirs(site + "/pkg")
    pathlib.Path(site, "pkg/__init__.py").write_text("answer = 42\n")
    for i in range(min(TIMES, 50)):
        pathlib.Path(site, f"pkg/m{i}.py").write_text(f"value = {i}\n")
    if not compileall.compile_dir(site, quiet=1):
        raise AssertionError("compileall failed")
    code = "import sys, pkg, pkg.m1; print(sys.prefix != sys.base_prefix, pkg.answer, pkg.m1.value)"
    equal(subprocess.check_output(["env/bin/python", "-c", code], text=True), "True 42 1\n")
    equal(subprocess.check_output(["env/bin/python", "-m", "timeit", "-n", "1", "-r", "1", "pass"], text=True)[:6], "1 loop")


def rest():
    ctypes.CDLL(None).getpid()
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(square)  # makes code at run time
    equal(callback(5), 25)
    equal(pickle.loads(pickle.dumps({"a": [1, 2]})), {"a": [1, 2]})
    uuid.uuid4()
    os.urandom(8)
    time.tzset()
    equal(os.cpu_count() >= 1, True)
    equal(len(os.sched_getaffinity(0)) >= 1, True)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    equal(signal.sigwait([signal.SIGALRM]), signal.SIGALRM)
    log = logging.handlers.RotatingFileHandler("log", maxBytes=1000, backupCount=2)
    for i in range(TIMES):
        log.emit(logging.LogRecord("work", logging.INFO, "", 0, "line %d", (i,), None))
    log.close()
    fd = os.memfd_create("work")
    os.write(fd, b"x")
    os.close(fd)
    r, w = os.pipe()
    os.set_blocking(r, False)
    os.close(r)
    os.close(w)


if __name__ == "__main__":
    for f in (files, processes, pools, databases, network, environments, rest):
        if TIMES == 1 and f is environments:
            continue
        try:
            f()
        except BaseException as e:
            e.add_note(f.__name__) if hasattr(e, "add_note") else None
            raise
    asyncio.run(talk())
    print("python work done")
