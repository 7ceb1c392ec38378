/** A position in a grid. */
export interface Cell {
  row: number
  column: number
}

/** Return the cell that a key moves to in a grid of rows and columns; null for other keys. */
export function moved(
  event: { key: string; ctrlKey: boolean; metaKey: boolean },
  { row, column }: Cell,
  rows: number,
  columns: number,
  page = 10,
): Cell | null {
  const isFar = event.ctrlKey || event.metaKey
  const targets: Record<string, [number, number]> = {
    ArrowUp: [row - 1, column],
    ArrowDown: [row + 1, column],
    ArrowLeft: [row, column - 1],
    ArrowRight: [row, column + 1],
    PageUp: [row - page, column],
    PageDown: [row + page, column],
    Home: [isFar ? 0 : row, 0],
    End: [isFar ? rows - 1 : row, columns - 1],
  }
  const target = targets[event.key]
  if (!target) return null
  const within = (position: number, length: number) => Math.max(0, Math.min(length - 1, position))
  return { row: within(target[0], rows), column: within(target[1], columns) }
}
