// Runs in the trace viewer's service worker, before its own code. A trace is hostile.
'use strict';
(() => {
  const name = /^[A-Za-z_][A-Za-z0-9_.:-]*$/;
  const banned = new Set(['OBJECT', 'EMBED', 'APPLET', 'PORTAL', 'FENCEDFRAME']);
  const text = v => typeof v === 'string' ? v : String(v);

  // (The viewer leaves scripts out by itself.) A node of a snapshot is a text, [[SNAPSHOTS BACK, NODE]], or [NAME, ATTRIBUTES, ...CHILDREN].
  // The viewer writes names as they are, so that one which is none would be markup of its own.
  const node = (n, depth) => {
    if (typeof n === 'string') return n;
    if (!Array.isArray(n) || depth > 2000) return '';
    if (Array.isArray(n[0])) return [[Number(n[0][0]) || 0, Number(n[0][1]) || 0]];
    if (typeof n[0] !== 'string') return '';
    // A node that is left out is still one: later snapshots refer to nodes by their number.
    const element = name.test(n[0]) && !banned.has(n[0].toUpperCase()) ? n[0] : 'X-REMOVED';
    const attributes = {};
    if (n[1] && typeof n[1] === 'object') {
      for (const [key, value] of Object.entries(n[1]))
        if (name.test(key)) attributes[key] = text(value);
    }
    const out = element.toUpperCase();
    if (out === 'LINK' && !/^\s*stylesheet\s*$/i.test(attributes.rel ?? attributes.REL ?? '')) return ['X-REMOVED', {}];
    if (out === 'META') for (const key of Object.keys(attributes)) if (key.toLowerCase() === 'http-equiv') delete attributes[key];
    // A frame's own page is a snapshot, whose path the viewer appends to /trace.
    if (out === 'IFRAME' || out === 'FRAME') for (const key of Object.keys(attributes)) {
      if (/^(?:src|__playwright_src__)$/i.test(key) && !/^\/snapshot\/[A-Za-z0-9@_-]+$/.test(attributes[key])) delete attributes[key];
    }
    const children = n.slice(2).map(child => node(child, depth + 1));
    // A style ends at this text, even in the middle of a rule.
    if (out === 'STYLE') return [element, attributes, ...children.map(c => typeof c === 'string' ? c.replace(/<(?=[/!])/g, '\\3c ') : c)];
    return [element, attributes, ...children];
  };

  const parse = JSON.parse;
  JSON.parse = function(source, reviver) {
    const value = parse.call(JSON, source, reviver);
    if (value && typeof value === 'object') {
      const shot = value.type === 'frame-snapshot' ? value.snapshot : undefined;
      if (shot && typeof shot === 'object') shot.html = node(shot.html, 0);
    }
    return value;
  };

  // What the worker makes of a trace: a snapshot is a page, all else is none.
  const digest = async script => {
    const sum = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(script)));
    return btoa(String.fromCharCode(...sum));
  };
  const guard = async (answer, request) => {
    if (answer.type !== 'default') return answer; // it came from the server, with its own policy
    const headers = new Headers(answer.headers);
    headers.delete('Link');
    headers.delete('Refresh');
    headers.delete('Set-Cookie');
    headers.set('Referrer-Policy', 'no-referrer');
    headers.set('X-Content-Type-Options', 'nosniff');
    let body = answer.body, scripts = "'none'";
    const page = request.mode === 'navigate' || request.destination === 'iframe' || request.destination === 'document' || request.destination === 'frame';
    if (page && new URL(request.url).pathname.includes('/snapshot/')) {
      // The viewer's own script is the first. The scripts of the trace follow it.
      body = await answer.text();
      const own = /^(?:<!DOCTYPE [A-Za-z0-9]*>)?<style>[^<]*<\/style><script>([^]*?)<\/script>/.exec(body);
      if (own) scripts = `'sha256-${await digest(own[1])}'`;
    }
    if (page || /^text\/html|xml/i.test(headers.get('Content-Type') ?? 'text/html')) {
      headers.append('Content-Security-Policy', [`default-src 'none'; script-src ${scripts}`, "style-src http: https: data: blob: 'unsafe-inline'",
        'img-src http: https: data: blob:', 'font-src http: https: data: blob:', 'media-src http: https: data: blob:',
        "frame-src 'self' data:", "object-src 'none'", "form-action 'none'", "frame-ancestors 'self'"].join('; '));
    }
    return new Response(body, {status: answer.status, statusText: answer.statusText, headers});
  };
  const respondWith = FetchEvent.prototype.respondWith;
  FetchEvent.prototype.respondWith = function(answer) {
    const request = this.request;
    return respondWith.call(this, Promise.resolve(answer).then(a => guard(a, request)));
  };
})();
