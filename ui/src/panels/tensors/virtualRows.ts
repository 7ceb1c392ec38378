/** The visible rows of a scrolling box, and their positions. */
export interface InSight {
  first: number
  last: number
  /** The scroll height of the box. */
  height: number
  /** The top of a row in the coordinates of the box. */
  topOf: (row: number) => number
}

/** Maximum height in pixels: browsers draw nothing beyond 17 to 33 million pixels. */
export const HIGHEST = 12_000_000

const OVERSCAN = 6

/** Return the scroll height, the table pixels per scrolled pixel (more than 1 beyond `HIGHEST`), and the view's top. */
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

/** Return the scroll position that makes a row visible; unchanged if it already is. */
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

/** Return the pages that contain a range of rows. */
export function pagesOf(first: number, last: number, pageSize: number): number[] {
  const from = Math.floor(first / pageSize)
  return Array.from(
    { length: Math.max(0, Math.floor(last / pageSize) - from + 1) },
    (_, index) => from + index,
  )
}
