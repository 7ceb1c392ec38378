import type { operations } from '~/api/schema'

export type Kind = '' | 'weight' | 'gradient' | 'activation'

/** The filters of the tree, apart from the graph. */
export interface Filter {
  name: string
  type: string
  kind: Kind
  /** Part of a line of the stack; `net.py:49` matches line 49, but not 490. */
  stack: string
}

export type NodeFilter = Omit<Filter, 'stack'>

export const noNodeFilter: NodeFilter = { name: '', type: '', kind: '' }

type SearchQuery = NonNullable<operations['search_nodes']['parameters']['query']>

// The server's limit for the text of a line.
const LONGEST_STACK = 255

export function isFiltering(filter: Filter): boolean {
  return Object.values(filter).some((value: string) => value.trim() !== '')
}

export function searchQuery(filter: Filter): SearchQuery {
  const query: SearchQuery = {}
  if (filter.name.trim()) query.name = filter.name.trim()
  if (filter.type.trim()) query.type = filter.type.trim()
  if (filter.kind) query.kind = filter.kind
  if (filter.stack.trim()) query.stack = stackText(filter.stack.trim())
  return query
}

/** Return the query for a stack line, which the server writes as `file:line  code`; of a long path, the end is kept. */
export function stackText(line: string): string {
  return (/:\d+$/.test(line) ? `${line}  ` : line).slice(-LONGEST_STACK)
}

/** Return `net.py:49` for `/home/me/net.py:49`. */
export function shortLine(line: string): string {
  return line.slice(line.lastIndexOf('/') + 1)
}
