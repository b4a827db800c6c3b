// clone URL DIR DEPTH | push DIR URL SRC:DST | fetch DIR URL DEPTH, by isomorphic-git.
const fs = require('fs')
const git = require('isomorphic-git')
const http = require('isomorphic-git/http/node')

const [op, ...args] = process.argv.slice(2)
const onMessage = text => process.stderr.write(text)
// The library takes credentials apart from the address.
const split = url => {
  const u = new URL(url)
  const { username, password } = u
  u.username = u.password = ''
  let asked = false
  const onAuth = () => {
    if (asked || !password) return { cancel: true }
    asked = true
    return { username, password }
  }
  return { url: u.toString(), onAuth, onMessage }
}

async function main() {
  switch (op) {
    case 'clone': {
      const [url, dir, depth] = args
      await git.clone({ fs, http, dir, ...split(url), depth: Number(depth) || undefined })
      break
    }
    case 'push': {
      const [dir, url, spec] = args
      const [src, dst] = spec.split(':')
      const result = src
        ? await git.push({ fs, http, dir, ...split(url), ref: src, remoteRef: dst })
        : await git.push({ fs, http, dir, ...split(url), ref: 'main', remoteRef: dst, delete: true })
      if (!result.ok) throw new Error('rejected: ' + JSON.stringify(result))
      break
    }
    case 'fetch': {
      const [dir, url, depth] = args
      await git.fetch({ fs, http, dir, ...split(url), remote: 'origin', depth: Number(depth) || 0x7fffffff })
      break
    }
    default:
      throw new Error('unknown operation ' + op)
  }
}

main().catch(err => {
  console.error(err.message, JSON.stringify(err.data ?? ''))
  process.exit(1)
})
