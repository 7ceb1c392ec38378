import type { Frame } from '~/api/types'
import { lastLine } from '~/parts/lines'

const LINES_AROUND = 3

/** Lines with those around them in the text of their file; none if the text has another line there by now. */
export function excerptOf(text: string, frame: Frame): { line: number; code: string }[] {
  const { line, code } = frame
  const lines = text.split(/\r?\n/)
  if (line == null || !(lines[line - 1] ?? '').includes(code.trim())) return []
  const first = Math.max(line - LINES_AROUND, 1)
  return lines
    .slice(first - 1, lastLine(frame) + LINES_AROUND)
    .map((one, index) => ({ line: first + index, code: one }))
}
