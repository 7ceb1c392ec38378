import type { GraphRecord, TreeEntry, TreePage } from '~/api/types'
import { TreeLines, type TreeLine } from '~/parts/treeLines'

/** Rows of a scope that are read at once. */
export const PAGE = 500

const ROWS_OF_UNKNOWN_SCOPE = 8

/** What a row shows: an entry of the server's tree, or one of several graphs. */
export type RowEntry = Omit<TreeEntry, 'kind'> & { kind: TreeEntry['kind'] | 'graph' }

interface Place extends TreeLine {
  rank: number
  graph: string
}

export interface EntryRow extends Place {
  kind: 'entry'
  entry: RowEntry
  /** null: there is nothing to open. */
  isOpen: boolean | null
  /** What is known of it is from before the last change, and is being read anew. */
  isStale: boolean
  /** In a list without its scopes: the path of the scope that has it. */
  below?: string
}

export interface LoadingRow extends Place {
  kind: 'loading'
  /** The page that has it, as `usePages` is asked for it. */
  page: PageName
}

export interface FailedRow extends Place {
  kind: 'failed'
  page: PageName
  message: string
}

export type Row = EntryRow | LoadingRow | FailedRow

export interface PageName {
  graph: string
  scope: string
  number: number
}

/** A page of rows as far as it is there. */
export interface KnownPage {
  page?: TreePage | undefined
  message?: string | undefined
  isStale: boolean
}

export function isBranch(entry: RowEntry): boolean {
  return entry.kind !== 'operator' && entry.kind !== 'parameter' && entry.kind !== 'constant'
}

/** A scope and a node may have the same path. */
export function rowKey(graph: string, path: string, branch: boolean): string {
  return `${graph}\n${path}${branch ? '\n' : ''}`
}

export function pageKey({ graph, scope, number }: PageName): string {
  return `${rowKey(graph, scope, true)}${number}`
}

/** Paths of the scopes around a scope, the outermost first, itself last; the root is not among them. */
export function scopesTo(scope: string): string[] {
  if (scope === '') return []
  if (scope.startsWith('@')) return [scope]
  const parts = scope.split('/')
  return parts.map((_, index) => parts.slice(0, index + 1).join('/'))
}

/** The scopes whose rows can be seen: they, and all around them, are open. */
export function openScopes(open: ReadonlySet<string>, graphs: readonly string[]): PageName[] {
  const visible: PageName[] = []
  for (const key of open) {
    const [graph = '', scope = ''] = key.split('\n')
    const around = ['', ...scopesTo(scope)]
    if (graphs.includes(graph) && around.every((one) => open.has(rowKey(graph, one, true)))) {
      visible.push({ graph, scope, number: 0 })
    }
  }
  return visible
}

/** How far something is watched all of whose parts are known; null: that is not known of one of them. */
export function watchedOf(
  parts: readonly Pick<RowEntry, 'watched'>[],
): 'none' | 'some' | 'all' | 'never' | null {
  const seen = new Set(parts.map((part) => part.watched ?? null).filter((one) => one !== 'never'))
  if (seen.has(null)) return null
  if (seen.size === 0) return 'never'
  return seen.size === 1 ? ([...seen][0] ?? null) : 'some'
}

function graphEntry(record: GraphRecord, root: TreePage | undefined): RowEntry {
  return {
    path: '',
    label: record.name,
    kind: 'graph',
    type: '',
    roles: [],
    children: root?.total ?? ROWS_OF_UNKNOWN_SCOPE,
    nodes: record.nodes,
    dynamic_shape: false,
    watched: root && root.total === root.entries.length ? watchedOf(root.entries) : null,
    hits: root?.entries.reduce((sum, entry) => sum + entry.hits, 0) ?? 0,
  }
}

export interface TreeShape {
  rank: number
  graphs: readonly GraphRecord[]
  /** With a row for each graph at the top. */
  hasGraphRows: boolean
  open: ReadonlySet<string>
  known: ReadonlyMap<string, KnownPage>
}

/** The rows of the tree as they stand one below the other; what is not there yet has rows of its own, so that nothing jumps. */
export function treeRows({ rank, graphs, hasGraphRows, open, known }: TreeShape): TreeLines<Row> {
  const rows = new TreeLines<Row>()

  const addScope = (graph: string, scope: string, depth: number, parent: number, expected: number) => {
    let total = expected
    for (let number = 0; number * PAGE < total || number === 0; number += 1) {
      const name = { graph, scope, number }
      const state = known.get(pageKey(name))
      const first = number * PAGE
      if (state?.page) {
        total = state.page.total
        state.page.entries.forEach((entry, index) => {
          const place = { rank, graph, depth, parent, nth: first + index + 1, siblings: total }
          addEntry(entry, place, state.isStale)
        })
      } else if (state?.message !== undefined) {
        const key = `${pageKey(name)}!`
        const place = { key, rank, graph, depth, parent, nth: first + 1, siblings: total }
        rows.push({ kind: 'failed', ...place, page: name, message: state.message })
      } else {
        const length = Math.min(PAGE, total - first)
        rows.pushStretch(length, (offset): LoadingRow => {
          const key = `${pageKey(name)}?${offset}`
          const nth = first + offset + 1
          return { kind: 'loading', key, rank, graph, depth, parent, nth, siblings: total, page: name }
        })
      }
    }
  }

  const addEntry = (entry: RowEntry, place: Omit<Place, 'key'>, isStale: boolean) => {
    const branch = isBranch(entry)
    const key = rowKey(place.graph, entry.path, branch)
    const isOpen = branch ? open.has(key) : null
    const index = rows.push({ kind: 'entry', key, ...place, entry, isOpen, isStale })
    if (isOpen) {
      addScope(place.graph, entry.path, place.depth + 1, index, entry.children)
    }
  }

  graphs.forEach((record, index) => {
    if (hasGraphRows) {
      const place = {
        rank,
        graph: record.name,
        depth: 0,
        parent: -1,
        nth: index + 1,
        siblings: graphs.length,
      }
      const root = known.get(pageKey({ graph: record.name, scope: '', number: 0 }))
      addEntry(graphEntry(record, root?.page), place, root?.isStale ?? true)
    } else {
      addScope(record.name, '', 0, -1, ROWS_OF_UNKNOWN_SCOPE)
    }
  })
  return rows
}
