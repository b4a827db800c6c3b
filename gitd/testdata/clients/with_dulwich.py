"""clone URL DIR DEPTH | push DIR URL REFSPEC | fetch DIR URL DEPTH, by dulwich.

DEPTH 0 means all. The end of a failure is on stderr, the exit status 1."""
import sys
from dulwich import client, porcelain, repo

op, args = sys.argv[1], sys.argv[2:]
if op == "clone":
    url, folder, depth = args
    r = porcelain.clone(url, folder, depth=int(depth) or None, errstream=sys.stderr.buffer)
    r.close()
elif op == "push":
    folder, url, spec = args
    src, dst = spec.encode().split(b":")
    with repo.Repo(folder) as r:
        conn, path = client.get_transport_and_path(url)
        head = r.refs[src] if src else b"0" * 40
        result = conn.send_pack(
            path, lambda refs: {**refs, dst: head}, r.generate_pack_data, progress=sys.stderr.buffer.write
        )
        bad = {k: v for k, v in (result.ref_status or {}).items() if v is not None}
        if bad:
            sys.exit("rejected: %r" % bad)
elif op == "fetch":
    folder, url, depth = args
    with repo.Repo(folder) as r:
        conn, path = client.get_transport_and_path(url)
        result = conn.fetch(path, r, depth=int(depth) or 0x7FFFFFFF, progress=sys.stderr.buffer.write)
        for name, value in result.refs.items():
            if name.startswith(b"refs/heads/"):
                r.refs[b"refs/remotes/origin/" + name[len(b"refs/heads/"):]] = value
else:
    sys.exit("unknown operation " + op)
