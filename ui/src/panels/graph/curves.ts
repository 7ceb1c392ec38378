import type { Layout, Position, Point } from './layout'
import type { Wire } from './picture'

/** Return the `d` of an SVG path along the points of a route: a B-spline that starts and ends vertically. */
export function smooth(points: readonly Point[]): string {
  const [first, second] = points
  const last = points.at(-1)
  if (!first || !second || !last) return ''
  if (points.length === 2) {
    const middle = (first.y + last.y) / 2
    return Math.abs(first.x - last.x) < 1
      ? `M${at(first)}L${at(last)}`
      : `M${at(first)}C${at({ x: first.x, y: middle })} ${at({ x: last.x, y: middle })} ${at(last)}`
  }
  const path = [`M${at(first)}L${at(mix(first, second, 1 / 6))}`]
  for (let number = 1; number < points.length; number += 1) {
    const before = points[number - 1] ?? first
    const here = points[number] ?? last
    const after = points[number + 1] ?? last
    const end = { x: (before.x + 4 * here.x + after.x) / 6, y: (before.y + 4 * here.y + after.y) / 6 }
    path.push(`C${at(mix(before, here, 1 / 3))} ${at(mix(before, here, 2 / 3))} ${at(end)}`)
  }
  path.push(`L${at(last)}`)
  return path.join('')
}

/** Return the label of a wire: the shape of its tensor, or its number of edges. */
export function wireText(wire: Wire): string {
  if (wire.back > 0) return `×${wire.count} ⇄ ×${wire.back}`
  if (wire.count > 1) return `×${wire.count}`
  const shape = wire.label.indexOf('[')
  return shape > 0 ? wire.label.slice(shape) : wire.label
}

/** Return positions of labels that cover no box and no other label; the other wires show theirs on hover. */
export function labelPositions(
  wires: readonly Wire[],
  layout: Layout,
  obstacles: Iterable<Position>,
): Map<string, Point> {
  const taken = new Shelf()
  for (const position of obstacles) taken.put(position)
  const positions = new Map<string, Point>()
  for (const wire of wires) {
    const text = wireText(wire)
    const route = layout.routes.get(wire.id)
    if (!text || !route) continue
    const width = text.length * 6 + 4
    for (const share of [0.5, 0.38, 0.62, 0.26, 0.74]) {
      const point = along(route, share)
      const position = { x: point.x - width / 2, y: point.y - 7, width, height: 14 }
      if (taken.isFree(position)) {
        taken.put(position)
        positions.set(wire.id, point)
        break
      }
    }
  }
  return positions
}

/** Return the point at a fraction of the length of a route. */
export function along(route: readonly Point[], share: number): Point {
  let rest = share * route.reduce((sum, point, number) => sum + length(route[number - 1] ?? point, point), 0)
  for (let number = 1; number < route.length; number += 1) {
    const from = route[number - 1]
    const to = route[number]
    if (!from || !to) break
    const size = length(from, to)
    if (rest <= size) return size === 0 ? from : mix(from, to, rest / size)
    rest -= size
  }
  return route.at(-1) ?? { x: 0, y: 0 }
}

/** Rectangles, indexed by the grid cells that they touch to find overlaps quickly. */
class Shelf {
  private readonly cells = new Map<string, Position[]>()

  put(position: Position): void {
    for (const cell of cellsOf(position)) {
      const there = this.cells.get(cell)
      if (there) there.push(position)
      else this.cells.set(cell, [position])
    }
  }

  isFree(position: Position): boolean {
    for (const cell of cellsOf(position)) {
      if (this.cells.get(cell)?.some((other) => isOverlapping(position, other))) return false
    }
    return true
  }
}

const CELL = 160

function* cellsOf({ x, y, width, height }: Position): Generator<string> {
  for (let column = Math.floor(x / CELL); column <= Math.floor((x + width) / CELL); column += 1)
    for (let row = Math.floor(y / CELL); row <= Math.floor((y + height) / CELL); row += 1)
      yield `${column},${row}`
}

function isOverlapping(a: Position, b: Position): boolean {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
}

function mix(from: Point, to: Point, share: number): Point {
  return { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share }
}

function length(from: Point, to: Point): number {
  return Math.hypot(to.x - from.x, to.y - from.y)
}

function at({ x, y }: Point): string {
  return `${Math.round(10 * x) / 10},${Math.round(10 * y) / 10}`
}
