"""clone URL DIR 0 | push DIR URL REFSPEC | fetch DIR URL 0, by libgit2."""
import sys
import pygit2

op, args = sys.argv[1], sys.argv[2:]


class Callbacks(pygit2.RemoteCallbacks):
    def push_update_reference(self, refname, message):
        if message is not None:
            sys.exit("rejected: %s: %s" % (refname, message))

    def sideband_progress(self, text):
        sys.stderr.write(text)


def remote(folder, url):
    remotes = pygit2.Repository(folder).remotes
    remotes.set_url("origin", url)
    return remotes["origin"]


if op == "clone":
    url, folder, _ = args
    pygit2.clone_repository(url, folder, callbacks=Callbacks())
elif op == "push":
    folder, url, spec = args
    remote(folder, url).push([spec], callbacks=Callbacks())
elif op == "fetch":
    folder, url, _ = args
    remote(folder, url).fetch(["+refs/heads/*:refs/remotes/origin/*"], callbacks=Callbacks())
else:
    sys.exit("unknown operation " + op)
