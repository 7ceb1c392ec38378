import type { GraphLevel, TreeEntry } from '~/api/types'
import { clustered, isCluster, type Cluster } from './groups'

export type BoxKind = 'scope' | 'cluster' | 'operator' | 'parameter' | 'constant'

/** A box of the picture: a node, a scope, or a cluster of similar siblings; scopes and clusters can be open. */
export interface Box {
  id: string
  kind: BoxKind
  /** Name of the node, path of the scope, or the key that opens a cluster. */
  path: string
  label: string
  detail: string
  type: string
  /** Id of the open box that contains it. */
  parent: string | null
  isOpen: boolean
  /** Nodes anywhere below, itself included. */
  nodes: number
  hits: number
  watched: NonNullable<TreeEntry['watched']> | ''
  roles: readonly string[]
  isDynamic: boolean
  /** Represents a node that is listed elsewhere beside an operator that reads it. */
  isProxy: boolean
  /** Names of nodes in it that have no separate box. */
  members: readonly string[]
}

/** All edges of one kind between two boxes. */
export interface Wire {
  id: string
  source: string
  target: string
  control: boolean
  count: number
  /** Number of edges in the opposite direction, drawn as the same line. */
  back: number
  /** The tensor that a single data edge carries: `float32[8,3]`. */
  label: string
}

export interface Picture {
  graph: string
  /** Outer boxes come before their contents. */
  boxes: readonly Box[]
  wires: readonly Wire[]
  isTruncated: boolean
}

/** What the user has chosen to see of a graph. */
export interface Shown {
  clusters: ReadonlySet<string>
  parameters: boolean
  constants: boolean
}

/** Return the picture of the open part of a graph. */
export function pictureOf(level: GraphLevel, shown: Shown): Picture {
  return new Builder(level, shown).build()
}

/** Return the box of a node or scope, or of the cluster that contains it. */
export function boxFor(picture: Picture, path: string): Box | undefined {
  return (
    picture.boxes.find((box) => box.path === path && box.kind !== 'cluster') ??
    picture.boxes.find((box) => box.members.includes(path))
  )
}

/** Return the box of a node, or the smallest box that contains it. */
export function boxHolding(picture: Picture, path: string): Box | undefined {
  for (let rest = path; rest !== ''; rest = rest.slice(0, Math.max(0, rest.lastIndexOf('/')))) {
    const box = boxFor(picture, rest)
    if (box) return box
  }
  return undefined
}

/** Return a text that differs only between pictures with different layouts. */
export function structureOf(picture: Picture): string {
  const boxes = picture.boxes.map((box) => `${box.id}${box.isOpen ? '+' : ''}@${box.parent ?? ''}`)
  return `${picture.graph}\n${boxes.join('\n')}\n${picture.wires.map((wire) => wire.id).join('\n')}`
}

class Builder {
  private readonly boxes: Box[] = []
  private readonly wires = new Map<string, Wire>()
  /** The box that represents each path of the level. */
  private readonly boxOf = new Map<string, Box>()
  private readonly insides: Map<string, TreeEntry[]>
  private readonly outside: Map<string, TreeEntry>
  private isTruncated: boolean

  constructor(
    private readonly level: GraphLevel,
    private readonly shown: Shown,
  ) {
    this.insides = new Map(level.opened.map(({ scope, entries }) => [scope, entries]))
    this.outside = new Map(level.outside.map((entry) => [entry.path, entry]))
    this.isTruncated = level.truncated || level.opened.some(({ truncated }) => truncated)
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

  /** Let a closed cluster represent an entry, and everything that would be visible in it if the cluster were open. */
  private absorb(entry: TreeEntry, box: Box): void {
    this.boxOf.set(entry.path, box)
    for (const inner of this.insides.get(entry.path) ?? []) this.absorb(inner, box)
  }

  private addEntry(entry: TreeEntry, parent: string | null): void {
    const inside = this.insides.get(entry.path)
    const isScope = entry.kind === 'scope' || entry.kind === 'parameters' || entry.kind === 'constants'
    const box = boxOfEntry(entry, parent, isScope && inside !== undefined)
    this.boxes.push(box)
    // A node may have the same name as a scope; edges then end at the node.
    if (!isScope || !this.boxOf.has(entry.path)) this.boxOf.set(entry.path, box)
    if (isScope && inside) this.addAll(entry.path, inside, box.id)
  }

  /** Return the box of a parameter or constant beside its reader; all readers in the same open box share it. */
  private proxy(path: string, reader: Box): Box | undefined {
    const entry = this.outside.get(path)
    if (!entry || reader.kind !== 'operator') return undefined
    if (entry.kind === 'parameter' && !this.shown.parameters) return undefined
    if (entry.kind === 'constant' && !this.shown.constants) return undefined
    const id = `${entry.kind}:${path}@${reader.parent ?? ''}`
    const existing = this.boxOf.get(id)
    if (existing) return existing
    const box: Box = { ...boxOfEntry(entry, reader.parent, false), id, isProxy: true }
    this.boxes.push(box)
    this.boxOf.set(id, box)
    return box
  }

  private connect(source: Box, target: Box, edge: GraphLevel['edges'][number]): void {
    // Edges that end at an open box belong to entries beyond its limit; groups would be connected to everything.
    if (source === target || source.isOpen || target.isOpen || isGroup(source) || isGroup(target)) return
    const id = `${source.id}>${target.id}${edge.control ? '>control' : ''}`
    const existing = this.wires.get(id)
    if (existing) this.wires.set(id, { ...existing, count: existing.count + edge.count, label: '' })
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
 * Merge the wires of boxes that feed each other, such as forward and backward pass, into one with two arrowheads. It
 * has the direction of the majority of the edges, which the layout follows too.
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

/** Whether a box is the group of all parameters or constants. */
function isGroup(box: Box): boolean {
  return box.path === '@parameters' || box.path === '@constants'
}

function sum(entries: readonly TreeEntry[], of: (entry: TreeEntry) => number): number {
  return entries.reduce((total, entry) => total + of(entry), 0)
}

function watchedOfAll(entries: readonly TreeEntry[]): Box['watched'] {
  const states = new Set(entries.map((entry) => entry.watched ?? '').filter((state) => state !== 'never'))
  const [only] = states
  return states.size === 0 ? 'never' : states.size === 1 && only !== undefined ? only : 'some'
}
