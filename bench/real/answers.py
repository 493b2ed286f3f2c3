"""A Prometheus that answers what it is told, and the odd answers that whoever asks one has to survive. Python's
standard library only: the chart's test uses it too."""

import http.server
import threading
import time

LIMIT = 400                     # what the answers are below or above
PASSES, FULL, UNKNOWN = "passes", "full", "unknown"
DEAD, HANGS, TRICKLES = object(), object(), object()


def vector(value, at="NOW"):
    """An answer with one row; the time is that of the answer."""
    return '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[%s,"%s"]}]}}' % (at, value)


# An answer, and what it means for whoever is refused above the limit.
ODD = {
    "below": (vector("399.5"), PASSES),
    "at the limit": (vector("400"), PASSES),
    "above": (vector("400.5"), FULL),
    "above, in whole seconds": (vector("401", "SECONDS"), FULL),
    "below, in whole seconds": (vector("1", "SECONDS"), PASSES),
    "1e5": (vector("1e5"), FULL),
    "1.5E+3": (vector("1.5E+3"), FULL),
    "4.5e+02": (vector("4.5e+02"), FULL),
    "1e-05": (vector("1e-05"), PASSES),
    "1e400": (vector("1e400"), FULL),
    "-0": (vector("-0"), PASSES),
    "huge": (vector("1.7976931348623157e+308"), FULL),
    "negative": (vector("-1"), PASSES),
    "infinite": (vector("+Inf"), FULL),
    "infinitely small": (vector("-Inf"), UNKNOWN),
    "NaN": (vector("NaN"), UNKNOWN),
    "0x20": (vector("0x20"), UNKNOWN),
    "0x1p3": (vector("0x1p3"), UNKNOWN),
    "blank before": (vector(" 12"), UNKNOWN),
    "1-5": (vector("1-5"), UNKNOWN),
    "an empty text": (vector(""), UNKNOWN),
    "a text": (vector("many"), UNKNOWN),
    "an empty result": ('{"status":"success","data":{"resultType":"vector","result":[]}}', UNKNOWN),
    "two rows": (vector("1").replace("}]}}", '},{"metric":{},"value":[1,"2"]}]}}'), UNKNOWN),
    "a label that looks like a value": (vector("401").replace('"a":"b"', r'"value":"\"value\":[1,\"1\"]"'), FULL),
    "a scalar": ('{"status":"success","data":{"resultType":"scalar","result":[NOW,"401"]}}', FULL),
    "a range": (vector("1").replace('"value":[', '"values":[[').replace('"]}]}}', '"]]}]}}'), UNKNOWN),
    "with blanks": (vector("401").replace(":", " : ").replace(",", " , ") + "\n", FULL),
    "of an hour ago": (vector("1", "AGO"), UNKNOWN),
    "an error with status 200": ('{"status":"error","errorType":"execution","error":"too many"}', UNKNOWN),
    "half of it": (vector("1")[:-12], UNKNOWN),
    "no JSON": ("<html>", UNKNOWN),
    "an empty body": ("", UNKNOWN),
    "a megabyte": (vector("1").replace('"b"', '"' + "b" * 1_000_000 + '"'), UNKNOWN),
    "status 400": (400, UNKNOWN),
    "status 503": (503, UNKNOWN),
    "no answer": (HANGS, UNKNOWN),
    "half of it, and then nothing": (TRICKLES, UNKNOWN),
    "a port that is closed": (DEAD, UNKNOWN),
}


class Prometheus:
    """Answers `answer`, and keeps the paths that were asked in `asked`; a context manager."""

    def __init__(self, answer=vector("0")):
        self.asked, self._answer, self.server = [], None, None
        self.port = None
        self._released = threading.Event()
        self._start()
        self.answer = answer

    @property
    def answer(self):
        return self._answer

    @answer.setter
    def answer(self, answer):
        self._answer = answer
        if answer is DEAD:
            self.stop()
        elif self.server is None:
            self._start()

    def _start(self):
        outer = self
        self._released = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer._reply(self)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads, block_on_close, request_queue_size = True, False, 128

            def handle_error(self, *_):
                """Whoever asked is gone."""

        self.server = Server(("127.0.0.1", self.port or 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def _reply(self, handler):
        self.asked.append(handler.path)
        answer = self._answer
        if answer is HANGS or answer is DEAD:
            self._released.wait(10)
            handler.close_connection = True
            return
        code = answer if isinstance(answer, int) else 200
        now = time.time()
        text = vector("1") if answer is TRICKLES else "" if isinstance(answer, int) else answer
        for word, at in (("NOW", f"{now:.3f}"), ("SECONDS", f"{now:.0f}"), ("AGO", f"{now - 3600:.3f}")):
            text = text.replace(f"[{word},", f"[{at},").replace(f"[ {word} ", f"[ {at} ")
            text = text.replace(f"[{word} ", f"[{at} ")
        body = text.encode()
        handler.send_response(code)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        # A connection of its own for each: one that closes is then not taken for one that does not answer.
        handler.send_header("connection", "close")
        handler.end_headers()
        if answer is TRICKLES:
            handler.wfile.write(body[:-12])
            handler.wfile.flush()
            self._released.wait(10)
        else:
            handler.wfile.write(body)
        handler.close_connection = True

    def stop(self):
        self._released.set()
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
