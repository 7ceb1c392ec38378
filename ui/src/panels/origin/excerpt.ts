import type { Frame } from '~/api/types'

const LINES_AROUND = 3

/** The lines around one in the text of its file; none if the text has another line there by now. */
export function excerptOf(text: string, { line, code }: Frame): { line: number; code: string }[] {
  const lines = text.split(/\r?\n/)
  if (line == null || !(lines[line - 1] ?? '').includes(code.trim())) return []
  const first = Math.max(line - LINES_AROUND, 1)
  return lines.slice(first - 1, line + LINES_AROUND).map((one, place) => ({ line: first + place, code: one }))
}
