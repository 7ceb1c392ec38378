import ELK, { type ElkNode } from 'elkjs/lib/elk-api.js'
import workerUrl from 'elkjs/lib/elk-worker.min.js?url'
import type { Picture } from './picture'
import { HEADER, sizeOf } from './sizes'

export interface Position {
  x: number
  y: number
  width: number
  height: number
}

export interface Point {
  x: number
  y: number
}

/** The positions of a picture's boxes and the routes of its wires, all relative to the same origin. */
export interface Layout {
  width: number
  height: number
  positions: ReadonlyMap<string, Position>
  routes: ReadonlyMap<string, readonly Point[]>
}

/** From this many boxes on, speed matters more than the last crossing. */
const MANY = 150
const VERY_MANY = 600

const options = {
  'elk.algorithm': 'layered',
  'elk.direction': 'DOWN',
  'elk.hierarchyHandling': 'INCLUDE_CHILDREN',
  'elk.json.shapeCoords': 'ROOT',
  'elk.json.edgeCoords': 'ROOT',
  'elk.edgeRouting': 'POLYLINE',
  'elk.layered.nodePlacement.strategy': 'BRANDES_KOEPF',
  'elk.layered.spacing.nodeNodeBetweenLayers': '46',
  'elk.layered.spacing.edgeNodeBetweenLayers': '16',
  'elk.spacing.nodeNode': '26',
  'elk.spacing.edgeNode': '18',
  'elk.spacing.edgeEdge': '12',
  'elk.spacing.componentComponent': '40',
  'elk.padding': '[top=16,left=16,bottom=16,right=16]',
}

const quicker = {
  'elk.layered.thoroughness': '2',
  'elk.layered.crossingMinimization.greedySwitch.type': 'OFF',
  'elk.layered.nodePlacement.bk.fixedAlignment': 'BALANCED',
}

const quickest = {
  ...quicker,
  'elk.layered.thoroughness': '1',
  'elk.layered.layering.strategy': 'LONGEST_PATH',
}

const REMEMBERED = 24
const remembered = new Map<string, Layout>()

let elk: InstanceType<typeof ELK> | undefined
let running: Promise<unknown> = Promise.resolve()

/** Return the layout worker; the first call starts it. */
function engine(): InstanceType<typeof ELK> {
  elk ??= new ELK({ workerFactory: () => new Worker(workerUrl) })
  return elk
}

/** Start the worker and let it compile its code while the graph is still loading. */
export function warmUp(): void {
  if (elk) return
  const names = Array.from({ length: 24 }, (_, number) => `${number}`)
  const graph: ElkNode = {
    id: 'warm',
    children: [{ id: 'all', children: names.map((id) => ({ id, width: 80, height: 30 })) }],
    edges: names.slice(1).flatMap((id, number) => [
      { id: `a${id}`, sources: [`${number}`], targets: [id] },
      { id: `b${id}`, sources: [`${number >> 1}`], targets: [id] },
    ]),
  }
  running = running.then(() => engine().layout(graph, { layoutOptions: options })).catch(() => undefined)
}

/** Lay out a picture, one at a time; return undefined if `isWanted` returns false when its turn comes. */
export async function layOut(
  picture: Picture,
  structure: string,
  isWanted: () => boolean,
): Promise<Layout | undefined> {
  const cached = remembered.get(structure)
  if (cached) return cached
  const before = running
  const made = before.then(async () => {
    if (!isWanted()) return undefined
    const count = picture.boxes.length
    const layoutOptions = { ...options, ...(count > VERY_MANY ? quickest : count > MANY ? quicker : {}) }
    return readLayout(await engine().layout(elkGraph(picture), { layoutOptions }))
  })
  running = made.catch(() => undefined)
  const layout = await made
  if (layout) {
    remembered.set(structure, layout)
    const [oldest] = remembered.keys()
    if (remembered.size > REMEMBERED && oldest !== undefined) remembered.delete(oldest)
  }
  return layout
}

function elkGraph(picture: Picture): ElkNode {
  const root: ElkNode = { id: 'root', children: [], edges: [] }
  const nodes = new Map<string, ElkNode>()
  for (const box of picture.boxes) {
    const size = sizeOf(box)
    const node: ElkNode = box.isOpen
      ? {
          id: box.id,
          children: [],
          layoutOptions: {
            'elk.padding': `[top=${HEADER + 12},left=14,bottom=14,right=14]`,
            'elk.nodeSize.constraints': 'MINIMUM_SIZE',
            'elk.nodeSize.minimum': `(${size.width},${size.height})`,
          },
        }
      : { id: box.id, ...size }
    nodes.set(box.id, node)
    const parent = box.parent === null ? root : nodes.get(box.parent)
    parent?.children?.push(node)
  }
  root.edges = picture.wires.map((wire) => ({
    id: wire.id,
    sources: [wire.source],
    targets: [wire.target],
    // If scopes feed each other both ways, the direction with more edges points down.
    layoutOptions: { 'elk.layered.priority.direction': String(wire.control ? 0 : Math.min(wire.count, 100)) },
  }))
  return root
}

function readLayout(graph: ElkNode): Layout {
  const positions = new Map<string, Position>()
  const routes = new Map<string, Point[]>()
  const waiting = [graph]
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    const { id, x = 0, y = 0, width = 0, height = 0, children = [], edges = [] } = node
    if (node !== graph) positions.set(id, { x, y, width, height })
    for (const edge of edges) {
      const section = edge.sections?.[0]
      if (section) routes.set(edge.id, [section.startPoint, ...(section.bendPoints ?? []), section.endPoint])
    }
    waiting.push(...children)
  }
  return { width: graph.width ?? 0, height: graph.height ?? 0, positions, routes }
}
