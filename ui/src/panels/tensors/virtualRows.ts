/** Rows in a box that scrolls: which are in sight, and where they are drawn. */
export interface InSight {
  first: number
  last: number
  /** The height that the box scrolls over. */
  height: number
  /** Where the top of a row is drawn, in the box's own coordinates. */
  topOf: (row: number) => number
}

/** Browsers draw nothing beyond some 17 to 33 million pixels. */
export const HIGHEST = 12_000_000

const OVERSCAN = 6

/** Beyond `HIGHEST` a pixel of scrolling is more than one of the table: how many, and where the view's top is in it. */
function position(count: number, rowHeight: number, scrollTop: number, viewHeight: number) {
  const whole = count * rowHeight
  const height = Math.min(whole, HIGHEST)
  const scale = height > viewHeight ? (whole - viewHeight) / (height - viewHeight) : 1
  return { height, scale, top: scrollTop * scale }
}

export function rowsInSight(
  count: number,
  rowHeight: number,
  scrollTop: number,
  viewHeight: number,
): InSight {
  const { height, top } = position(count, rowHeight, scrollTop, viewHeight)
  const first = Math.max(0, Math.floor(top / rowHeight) - OVERSCAN)
  const last = Math.min(count, Math.ceil((top + viewHeight) / rowHeight) + OVERSCAN) - 1
  return { first, last, height, topOf: (row) => row * rowHeight - top + scrollTop }
}

/** Where to scroll to so that a row is in sight; the same place if it is. */
export function scrollTo(
  row: number,
  count: number,
  rowHeight: number,
  scrollTop: number,
  viewHeight: number,
): number {
  const { scale, top } = position(count, rowHeight, scrollTop, viewHeight)
  const begin = row * rowHeight
  if (begin < top) return begin / scale
  const end = begin + rowHeight - viewHeight
  return end > top ? end / scale : scrollTop
}

/** The pages that hold some rows. */
export function pagesOf(first: number, last: number, pageSize: number): number[] {
  const from = Math.floor(first / pageSize)
  return Array.from(
    { length: Math.max(0, Math.floor(last / pageSize) - from + 1) },
    (_, index) => from + index,
  )
}
