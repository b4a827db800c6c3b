// Lets the terminal emulator work under a policy without unsafe-inline. It makes style elements, which get the nonce of the page, and sets
// style attributes of spans, which are set by the object model instead.

let done = false;

export function admitStyles(nonce: string) {
  if (done) return;
  done = true;
  const make = document.createElement.bind(document) as (name: string, o?: ElementCreationOptions) => HTMLElement;
  document.createElement = ((name: string, o?: ElementCreationOptions) => {
    const e = make(name, o);
    if (nonce && name.toLowerCase() === 'style') e.setAttribute('nonce', nonce);
    return e;
  }) as typeof document.createElement;
  const set = Element.prototype.setAttribute;
  HTMLSpanElement.prototype.setAttribute = function (this: HTMLSpanElement, name: string, value: string) {
    if (name === 'style') this.style.cssText = value; else set.call(this, name, value);
  };
}
