// Makes an element equal to another one, and changes nothing that is equal already.

/** Makes old equal to fresh, whose nodes it may take. Text that grows at its end is appended to, so that the browser lays out only the new words. */
export function morph(old: Node, fresh: Node) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.parentNode!.replaceChild(fresh, old);
    return;
  }
  if (old instanceof CharacterData) {
    const [have, want] = [old.data, (fresh as CharacterData).data];
    if (have === want) return;
    if (want.startsWith(have)) old.appendData(want.slice(have.length)); else old.data = want;
    return;
  }
  if (old.isEqualNode(fresh)) return;
  if (old instanceof Element) attributes(old, fresh as Element);
  const [have, want] = [[...old.childNodes], [...fresh.childNodes]];
  have.forEach((node, i) => { if (want[i]) morph(node, want[i]); else node.remove(); });
  for (const node of want.slice(have.length)) old.append(node);
}

function attributes(old: Element, fresh: Element) {
  for (const a of [...old.attributes]) if (!fresh.hasAttribute(a.name)) old.removeAttribute(a.name);
  for (const a of fresh.attributes) if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
}
