import type { Frame } from '~/api/types'
import { lastLine } from '~/parts/lines'

const LINES_AROUND = 3

/** Return the lines of a frame and around it from the text of its file; none if the file has changed since. */
export function excerptOf(text: string, frame: Frame): { line: number; code: string }[] {
  const { line, code } = frame
  const lines = text.split(/\r?\n/)
  if (line == null || !(lines[line - 1] ?? '').includes(code.trim())) return []
  const first = Math.max(line - LINES_AROUND, 1)
  return lines
    .slice(first - 1, lastLine(frame) + LINES_AROUND)
    .map((content, index) => ({ line: first + index, code: content }))
}
