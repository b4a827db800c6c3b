// Shows how long the session lasts, in time to sign in again. The server sends the time that is left, since clocks differ.
import { announce } from './toast';

const notice = document.querySelector<HTMLElement>('[data-left]');
const longest = 3_600_000; // milliseconds until the next look, since a computer sleeps

if (notice) {
  const ends = Date.now() + Number(notice.dataset.left) * 1000;
  const soon = Number(notice.dataset.soon) * 1000;
  let timer = 0;
  const look = () => {
    clearTimeout(timer);
    const left = ends - Date.now();
    if (left > soon) {
      timer = window.setTimeout(look, Math.min(longest, left - soon + 50));
      return;
    }
    if (!notice.hidden) return;
    notice.hidden = false;
    announce('Your session ends soon. Sign in again to go on.');
  };
  look();
  document.addEventListener('visibilitychange', look);
}
