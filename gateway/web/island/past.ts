// The script of timelines, outputs and pairs of pictures. later.ts loads it.

import type { tools } from './later';
import { scrub } from './scrub';

export type Tools = typeof tools;

export function begin(t: Tools) {
  scrub(t);
}
