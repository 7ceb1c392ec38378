import type { GraphLevel, TreeEntry } from '~/api/types'
import { clustered, isCluster, type Cluster } from './groups'

export type BoxKind = 'scope' | 'cluster' | 'operator' | 'parameter' | 'constant'

/** Something that is drawn as a box: a node, a scope, or a cluster of alike siblings; a scope and a cluster can be open. */
export interface Box {
  id: string
  kind: BoxKind
  /** Name of the node, path of the scope; of a cluster the key under which it is opened. */
  path: string
  label: string
  detail: string
  type: string
  /** The open box that it lies in. */
  parent: string | null
  isOpen: boolean
  /** Nodes anywhere below, itself included. */
  nodes: number
  hits: number
  watched: NonNullable<TreeEntry['watched']> | ''
  roles: readonly string[]
  isDynamic: boolean
  /** Stands beside a reader for something that is listed elsewhere. */
  isProxy: boolean
  /** Names that are in it without a box of their own. */
  members: readonly string[]
}

/** All edges between two boxes, of one kind, as one. */
export interface Wire {
  id: string
  source: string
  target: string
  control: boolean
  count: number
  /** How many go the other way; they are drawn as the same line. */
  back: number
  /** The tensor that a single data edge carries: `float32[8,3]`. */
  label: string
}

export interface Picture {
  graph: string
  /** Outer boxes come before what is in them. */
  boxes: readonly Box[]
  wires: readonly Wire[]
  isTruncated: boolean
}

/** What a person wants to see of a graph. */
export interface Shown {
  clusters: ReadonlySet<string>
  parameters: boolean
  constants: boolean
}

/** What is drawn of the opened part of a graph. */
export function pictureOf(level: GraphLevel, shown: Shown): Picture {
  return new Builder(level, shown).build()
}

/** The box that shows a node or scope: its own, or that of the cluster which holds it. */
export function boxFor(picture: Picture, path: string): Box | undefined {
  return (
    picture.boxes.find((box) => box.path === path && box.kind !== 'cluster') ??
    picture.boxes.find((box) => box.members.includes(path))
  )
}

/** The box that shows a node, or else the smallest one that holds it. */
export function boxHolding(picture: Picture, path: string): Box | undefined {
  for (let rest = path; rest !== ''; rest = rest.slice(0, Math.max(0, rest.lastIndexOf('/')))) {
    const box = boxFor(picture, rest)
    if (box) return box
  }
  return undefined
}

/** What only tells pictures apart that must be laid out differently. */
export function structureOf(picture: Picture): string {
  const boxes = picture.boxes.map((box) => `${box.id}${box.isOpen ? '+' : ''}@${box.parent ?? ''}`)
  return `${picture.graph}\n${boxes.join('\n')}\n${picture.wires.map((wire) => wire.id).join('\n')}`
}

class Builder {
  private readonly boxes: Box[] = []
  private readonly wires = new Map<string, Wire>()
  /** For each path of the level the box that stands for it. */
  private readonly boxOf = new Map<string, Box>()
  private readonly insides: Map<string, TreeEntry[]>
  private readonly outside: Map<string, TreeEntry>
  private isTruncated: boolean

  constructor(
    private readonly level: GraphLevel,
    private readonly shown: Shown,
  ) {
    this.insides = new Map(level.opened.map((one) => [one.scope, one.entries]))
    this.outside = new Map(level.outside.map((entry) => [entry.path, entry]))
    this.isTruncated = level.truncated || level.opened.some((one) => one.truncated)
  }

  build(): Picture {
    this.addAll(this.level.scope, this.level.entries, null)
    for (const edge of this.level.edges) {
      const target = this.boxOf.get(edge.target)
      if (!target) continue
      const source = this.outside.has(edge.source)
        ? this.proxy(edge.source, target)
        : this.boxOf.get(edge.source)
      if (source) this.connect(source, target, edge)
    }
    return {
      graph: this.level.graph,
      boxes: this.boxes,
      wires: bothWaysAsOne([...this.wires.values()]),
      isTruncated: this.isTruncated,
    }
  }

  private addAll(scope: string, entries: readonly TreeEntry[], parent: string | null): void {
    for (const item of clustered(entries)) {
      if (isCluster(item)) this.addCluster(scope, item, parent)
      else this.addEntry(item, parent)
    }
  }

  private addCluster(scope: string, cluster: Cluster, parent: string | null): void {
    const path = `${scope}/${cluster.key}`
    const isOpen = this.shown.clusters.has(path)
    const box: Box = {
      id: `cluster:${path}`,
      kind: 'cluster',
      path,
      label: cluster.label,
      detail: cluster.detail,
      type: cluster.entries[0]?.type ?? '',
      parent,
      isOpen,
      nodes: sum(cluster.entries, (entry) => entry.nodes),
      hits: sum(cluster.entries, (entry) => entry.hits),
      watched: watchedOfAll(cluster.entries),
      roles: [],
      isDynamic: cluster.entries.some((entry) => entry.dynamic_shape),
      isProxy: false,
      members: isOpen ? [] : cluster.entries.map((entry) => entry.path),
    }
    this.boxes.push(box)
    for (const entry of cluster.entries) {
      if (isOpen) this.addEntry(entry, box.id)
      else this.absorb(entry, box)
    }
  }

  /** Have a closed cluster stand for an entry, and for what would be drawn of it were the cluster open. */
  private absorb(entry: TreeEntry, box: Box): void {
    this.boxOf.set(entry.path, box)
    for (const inner of this.insides.get(entry.path) ?? []) this.absorb(inner, box)
  }

  private addEntry(entry: TreeEntry, parent: string | null): void {
    const inside = this.insides.get(entry.path)
    const isScope = entry.kind === 'scope' || entry.kind === 'parameters' || entry.kind === 'constants'
    const box = boxOfEntry(entry, parent, isScope && inside !== undefined)
    this.boxes.push(box)
    // A node may be named like a scope; edges end at the node then.
    if (!isScope || !this.boxOf.has(entry.path)) this.boxOf.set(entry.path, box)
    if (isScope && inside) this.addAll(entry.path, inside, box.id)
  }

  /** A parameter or constant beside the operator that reads it; one for all readers in the same open box. */
  private proxy(path: string, reader: Box): Box | undefined {
    const entry = this.outside.get(path)
    if (!entry || reader.kind !== 'operator') return undefined
    if (entry.kind === 'parameter' && !this.shown.parameters) return undefined
    if (entry.kind === 'constant' && !this.shown.constants) return undefined
    const id = `${entry.kind}:${path}@${reader.parent ?? ''}`
    const known = this.boxOf.get(id)
    if (known) return known
    const box: Box = { ...boxOfEntry(entry, reader.parent, false), id, isProxy: true }
    this.boxes.push(box)
    this.boxOf.set(id, box)
    return box
  }

  private connect(source: Box, target: Box, edge: GraphLevel['edges'][number]): void {
    // What lies in a scope beyond its limit counts as the scope's; groups would be tied to everything.
    if (source === target || source.isOpen || target.isOpen || isGroup(source) || isGroup(target)) return
    const id = `${source.id}>${target.id}${edge.control ? '>control' : ''}`
    const known = this.wires.get(id)
    if (known) this.wires.set(id, { ...known, count: known.count + edge.count, label: '' })
    else {
      const { control, count, label } = edge
      this.wires.set(id, { id, source: source.id, target: target.id, control, count, back: 0, label })
    }
  }
}

function boxOfEntry(entry: TreeEntry, parent: string | null, isOpen: boolean): Box {
  const kind = entry.kind === 'parameters' || entry.kind === 'constants' ? 'scope' : entry.kind
  return {
    id: `${entry.kind}:${entry.path}`,
    kind,
    path: entry.path,
    label: entry.label,
    detail: '',
    type: entry.type,
    parent,
    isOpen,
    nodes: entry.nodes,
    hits: entry.hits,
    watched: entry.watched ?? '',
    roles: entry.roles,
    isDynamic: entry.dynamic_shape,
    isProxy: false,
    members: [],
  }
}

/**
 * Boxes that feed each other (forward and backward pass, say) get one line with two heads. It runs the way of most
 * edges, which is also the way that the layout goes.
 */
function bothWaysAsOne(wires: Wire[]): Wire[] {
  const data = new Map(
    wires.filter((wire) => !wire.control).map((wire) => [`${wire.source}>${wire.target}`, wire]),
  )
  return wires.flatMap((wire) => {
    const other = wire.control ? undefined : data.get(`${wire.target}>${wire.source}`)
    if (!other) return [wire]
    const isMain =
      wire.count > other.count || (wire.count === other.count && wires.indexOf(wire) < wires.indexOf(other))
    return isMain ? [{ ...wire, back: other.count, label: '' }] : []
  })
}

/** Whether a box is the group of all parameters, or constants, and closed. */
function isGroup(box: Box): boolean {
  return box.path === '@parameters' || box.path === '@constants'
}

function sum(entries: readonly TreeEntry[], of: (entry: TreeEntry) => number): number {
  return entries.reduce((total, entry) => total + of(entry), 0)
}

function watchedOfAll(entries: readonly TreeEntry[]): Box['watched'] {
  const found = new Set(entries.map((entry) => entry.watched ?? '').filter((one) => one !== 'never'))
  const [only] = found
  return found.size === 0 ? 'never' : found.size === 1 && only !== undefined ? only : 'some'
}
