import type { SearchPage, TreeEntry } from '~/api/types'
import { TreeLines } from '~/parts/treeLines'
import { isBranch, rowKey, watchedOf, type LoadingRow, type Row, type RowEntry } from './rows'

export type FoundNode = SearchPage['nodes'][number]

/** A scope of the tree that has only what a search found. */
interface Branch {
  entry: RowEntry
  scopes: Map<string, Branch>
  nodes: FoundNode[]
}

function branch(path: string, label: string, kind: RowEntry['kind']): Branch {
  const entry = {
    path,
    label,
    kind,
    type: '',
    roles: [],
    children: 0,
    nodes: 0,
    dynamic_shape: false,
    hits: 0,
  }
  return { entry: { ...entry, watched: null }, scopes: new Map(), nodes: [] }
}

/** Where the tree has a node: the path of its scope or group. */
export function scopeOf(entry: Pick<TreeEntry, 'path' | 'kind'>): string {
  if (entry.kind === 'parameter') return '@parameters'
  if (entry.kind === 'constant') return '@constants'
  return entry.path.slice(0, Math.max(entry.path.lastIndexOf('/'), 0))
}

function below(parent: Branch, path: string): Branch {
  let child = parent.scopes.get(path)
  if (child === undefined) {
    const isGroup = path === '@parameters' || path === '@constants'
    const kind = path === '@parameters' ? 'parameters' : path === '@constants' ? 'constants' : 'scope'
    child = branch(path, isGroup ? kind : path.slice(path.lastIndexOf('/') + 1), kind)
    parent.scopes.set(path, child)
  }
  return child
}

function insert(root: Branch, found: FoundNode): void {
  const scope = scopeOf(found.entry)
  let at = root
  if (scope.startsWith('@')) {
    at = below(at, scope)
  } else if (scope !== '') {
    for (let end = scope.indexOf('/'); end !== -1; end = scope.indexOf('/', end + 1)) {
      at = below(at, scope.slice(0, end))
    }
    at = below(at, scope)
  }
  at.nodes.push(found)
}

/** Count what is below, and tell how far it is watched. */
function sum(at: Branch): RowEntry {
  const parts = [...[...at.scopes.values()].map(sum), ...at.nodes.map((found) => found.entry)]
  at.entry.children = parts.length
  for (const part of parts) {
    at.entry.nodes += part.nodes
    at.entry.hits += part.hits
  }
  at.entry.watched = watchedOf(parts)
  return at.entry
}

/** As the whole tree has them: scopes by name, then parameters and constants, then nodes. */
function sorted(at: Branch): Branch[] {
  const isGroup = (one: Branch) => (one.entry.kind === 'scope' ? 0 : 1)
  const byName = (a: Branch, b: Branch) => (a.entry.path < b.entry.path ? -1 : 1)
  return [...at.scopes.values()].sort((a, b) => isGroup(a) - isGroup(b) || byName(a, b))
}

export interface FoundShape {
  rank: number
  nodes: readonly FoundNode[]
  hasGraphRows: boolean
  /** Keys of what a person has closed: all else is open. */
  closed: ReadonlySet<string>
  isStale: boolean
}

/** What a search found as a tree that has nothing else. */
export function foundTreeRows({ rank, nodes, hasGraphRows, closed, isStale }: FoundShape): TreeLines<Row> {
  const graphs = new Map<string, Branch>()
  for (const found of nodes) {
    let root = graphs.get(found.graph)
    if (root === undefined) graphs.set(found.graph, (root = branch('', found.graph, 'graph')))
    insert(root, found)
  }
  const rows = new TreeLines<Row>()

  const addEntry = (graph: string, entry: RowEntry, at: Branch | null, where: Omit<RowPlace, 'graph'>) => {
    const key = rowKey(graph, entry.path, isBranch(entry))
    const isOpen = at === null ? null : !closed.has(key)
    const index = rows.push({ kind: 'entry', key, rank, graph, ...where, entry, isOpen, isStale })
    if (at !== null && isOpen) addBelow(graph, at, where.depth + 1, index)
  }

  const addBelow = (graph: string, at: Branch, depth: number, parent: number) => {
    const siblings = at.entry.children
    let nth = 0
    for (const scope of sorted(at)) {
      addEntry(graph, scope.entry, scope, { depth, parent, nth: (nth += 1), siblings })
    }
    for (const found of at.nodes) {
      addEntry(graph, found.entry, null, { depth, parent, nth: (nth += 1), siblings })
    }
  }

  let nth = 0
  for (const [graph, root] of graphs) {
    sum(root)
    const siblings = graphs.size
    if (hasGraphRows) addEntry(graph, root.entry, root, { depth: 0, parent: -1, nth: (nth += 1), siblings })
    else addBelow(graph, root, 0, -1)
  }
  return rows
}

interface RowPlace {
  graph: string
  depth: number
  parent: number
  nth: number
  siblings: number
}

/** What a search found one below the other, with the page of each that is not there yet. */
export function foundListRows(
  rank: number,
  total: number,
  pages: ReadonlyMap<number, readonly FoundNode[]>,
  size: number,
  isStale: boolean,
): TreeLines<Row> {
  const rows = new TreeLines<Row>()
  for (let first = 0; first < total; first += size) {
    const number = first / size
    const place = { rank, depth: 0, parent: -1, siblings: total }
    const nodes = pages.get(number)
    if (nodes === undefined) {
      const page = { graph: '', scope: '', number }
      rows.pushStretch(Math.min(size, total - first), (offset): LoadingRow => {
        const nth = first + offset + 1
        return { kind: 'loading', key: `?${nth}`, graph: '', ...place, nth, page }
      })
      continue
    }
    nodes.forEach((found, index) => {
      const { graph, entry } = found
      const scope = scopeOf(entry)
      const below = scope.startsWith('@') ? '' : scope
      const extra = { nth: first + index + 1, entry, isOpen: null, isStale, below }
      rows.push({ kind: 'entry', key: rowKey(graph, entry.path, false), graph, ...place, ...extra })
    })
  }
  return rows
}
