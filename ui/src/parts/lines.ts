import type { Frame } from '~/api/types'

/** Return the last line of a frame's code, which may span several lines. */
export function lastLine({ line, end_line }: Pick<Frame, 'line' | 'end_line'>): number {
  return Math.max(line ?? 0, end_line ?? 0)
}

/** Return `19`, or `16–18` if any of several lines may have computed it. */
export function linesOf(frame: Pick<Frame, 'line' | 'end_line'>): string {
  const last = lastLine(frame)
  return last > (frame.line ?? 0) ? `${frame.line}–${last}` : `${frame.line ?? ''}`
}

/** Return the line of code, or the first of several. */
export function codeOf(frame: Pick<Frame, 'line' | 'end_line' | 'code'>): string {
  return lastLine(frame) > (frame.line ?? 0) ? `${frame.code.trim()} …` : frame.code.trim()
}
