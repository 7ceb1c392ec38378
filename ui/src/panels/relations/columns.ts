import type { RelationGraph } from '~/api/types'

export type RelatedNode = RelationGraph['nodes'][number]

/** A node with its position: producers on the left, the centre, consumers on the right. */
export interface Card {
  node: RelatedNode
  x: number
  y: number
  width: number
  height: number
}

export interface Line {
  id: string
  path: string
  control: boolean
  label: string
}

export interface Columns {
  cards: Card[]
  lines: Line[]
  width: number
  height: number
}

export const CARD_HEIGHT = 44
const GAP = 10
const MARGIN = 10
const LEAST_CARD = 92
const MOST_CARD = 260

/** Lay out a relationship graph in three columns; the result may be larger than the given room. */
export function columnsOf(graph: RelationGraph, room: { width: number; height: number }): Columns {
  const between = Math.max(36, Math.min(110, room.width * 0.11))
  const width = Math.max(LEAST_CARD, Math.min(MOST_CARD, (room.width - 2 * MARGIN - 2 * between) / 3))
  const columns = [-1, 0, 1].map((side) => graph.nodes.filter((node) => Math.sign(node.distance) === side))
  const most = Math.max(...columns.map((nodes) => nodes.length))
  const height = Math.max(room.height, most * (CARD_HEIGHT + GAP) - GAP + 2 * MARGIN)
  const used = 3 * width + 2 * between
  const left = Math.max(MARGIN, (room.width - used) / 2)
  const cards = columns.flatMap((nodes, column) => {
    const top = (height - nodes.length * (CARD_HEIGHT + GAP) + GAP) / 2
    return nodes.map((node, row) => ({
      node,
      x: left + column * (width + between),
      y: top + row * (CARD_HEIGHT + GAP),
      width,
      height: CARD_HEIGHT,
    }))
  })
  return { cards, lines: linesOf(graph, cards), width: Math.max(room.width, used + 2 * MARGIN), height }
}

function linesOf(graph: RelationGraph, cards: Card[]): Line[] {
  const cardOf = new Map(cards.map((card) => [card.node.name, card]))
  return graph.edges.flatMap((edge) => {
    const from = cardOf.get(edge.source)
    const to = cardOf.get(edge.target)
    // Edges between producers, or between consumers, are not shown.
    if (!from || !to || Math.sign(from.node.distance) >= Math.sign(to.node.distance)) return []
    const [x1, y1] = [from.x + from.width + 8, from.y + from.height / 2]
    const [x2, y2] = [to.x - 2, to.y + to.height / 2]
    const middle = (x1 + x2) / 2
    return [
      {
        id: `${edge.source}>${edge.target}>${edge.control}`,
        path: `M${x1},${y1}C${middle},${y1} ${middle},${y2} ${x2},${y2}`,
        control: edge.control,
        label: edge.count > 1 ? `×${edge.count}` : edge.label,
      },
    ]
  })
}

/** Return the last part of a node's name. */
export function shortName(name: string): string {
  return name.slice(name.lastIndexOf('/') + 1)
}
