"""Programs that tasks run in more than one test."""

# Sends itself a byte and says whether it arrived, again and again.
TALKS = """
import socket, time
a = socket.create_server(("127.0.0.1", 0))
out = socket.create_connection(a.getsockname())
into = a.accept()[0]
into.settimeout(0.2)
while True:
    out.send(b"x")
    try:
        into.recv(1)
        print("heard", flush=True)
    except TimeoutError:
        print("silence", flush=True)
    time.sleep(0.05)
"""
