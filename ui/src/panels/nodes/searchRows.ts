import type { SearchPage, TreeEntry } from '~/api/types'
import { TreeLines } from '~/parts/treeLines'
import { entryKey, watchedOf, type LoadingRow, type Row } from './rows'

export type FoundNode = SearchPage['nodes'][number]

/** A scope in the tree of search results. */
interface Branch {
  entry: TreeEntry
  scopes: Map<string, Branch>
  nodes: FoundNode[]
}

function branch(path: string, label: string, kind: TreeEntry['kind']): Branch {
  const entry = {
    path,
    label,
    kind,
    graph: '',
    graphs: [],
    apart: false,
    type: '',
    roles: [],
    children: 0,
    nodes: 0,
    dynamic_shape: false,
    hits: 0,
  }
  return { entry: { ...entry, watched: null }, scopes: new Map(), nodes: [] }
}

/** Return the path of the scope or group that contains a node in the tree. */
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

function insert(root: Branch, node: FoundNode): void {
  const scope = scopeOf(node.entry)
  let at = root
  if (scope.startsWith('@')) {
    at = below(at, scope)
  } else if (scope !== '') {
    for (let end = scope.indexOf('/'); end !== -1; end = scope.indexOf('/', end + 1)) {
      at = below(at, scope.slice(0, end))
    }
    at = below(at, scope)
  }
  at.nodes.push(node)
}

/** Compute the counts and the watched state of a branch from everything below it. */
function sum(at: Branch): TreeEntry {
  const parts = [...[...at.scopes.values()].map(sum), ...at.nodes.map((node) => node.entry)]
  at.entry.children = parts.length
  for (const part of parts) {
    at.entry.nodes += part.nodes
    at.entry.hits += part.hits
  }
  at.entry.watched = watchedOf(parts)
  return at.entry
}

/** Sort as in the whole tree: scopes in the order of their matches, then parameters and constants. */
function sorted(at: Branch): Branch[] {
  const isGroup = (child: Branch) => (child.entry.kind === 'scope' ? 0 : 1)
  return [...at.scopes.values()].sort((a, b) => isGroup(a) - isGroup(b))
}

export interface SearchShape {
  rank: number
  /** Empty: the whole program. */
  graph: string
  nodes: readonly FoundNode[]
  /** Keys of the rows that the user has closed; all others are open. */
  closed: ReadonlySet<string>
  isStale: boolean
}

/** Return the rows of a tree that contains only the matches of a search. */
export function searchTreeRows({ rank, graph, nodes, closed, isStale }: SearchShape): TreeLines<Row> {
  const root = branch('', '', 'scope')
  for (const node of nodes) insert(root, node)
  const rows = new TreeLines<Row>()

  const addEntry = (entry: TreeEntry, at: Branch | null, where: RowPosition) => {
    const key = entryKey(graph, entry)
    const isOpen = at === null ? null : !closed.has(key)
    const marked = entry.graphs
    const index = rows.push({ kind: 'entry', key, rank, graph, ...where, entry, isOpen, isStale, marked })
    if (at !== null && isOpen) addBelow(at, where.depth + 1, index)
  }

  const addBelow = (at: Branch, depth: number, parent: number) => {
    const siblings = at.entry.children
    let nth = 0
    for (const scope of sorted(at)) addEntry(scope.entry, scope, { depth, parent, nth: (nth += 1), siblings })
    for (const node of at.nodes) addEntry(node.entry, null, { depth, parent, nth: (nth += 1), siblings })
  }

  sum(root)
  addBelow(root, 0, -1)
  return rows
}

interface RowPosition {
  depth: number
  parent: number
  nth: number
  siblings: number
}

/** Return the matches of a search as a list; rows that are not loaded yet name their page. */
export function searchListRows(
  rank: number,
  graph: string,
  total: number,
  pages: ReadonlyMap<number, readonly FoundNode[]>,
  size: number,
  isStale: boolean,
): TreeLines<Row> {
  const rows = new TreeLines<Row>()
  for (let first = 0; first < total; first += size) {
    const number = first / size
    const position = { rank, graph, depth: 0, parent: -1, siblings: total }
    const nodes = pages.get(number)
    if (nodes === undefined) {
      const page = { graph, scope: '', number }
      rows.pushStretch(Math.min(size, total - first), (offset): LoadingRow => {
        const nth = first + offset + 1
        return { kind: 'loading', key: `?${nth}`, ...position, nth, page }
      })
      continue
    }
    nodes.forEach((node, index) => {
      const { entry } = node
      const scope = scopeOf(entry)
      const below = scope.startsWith('@') ? '' : scope
      const extra = { nth: first + index + 1, entry, isOpen: null, isStale, marked: entry.graphs, below }
      rows.push({ kind: 'entry', key: entryKey(graph, entry), ...position, ...extra })
    })
  }
  return rows
}
