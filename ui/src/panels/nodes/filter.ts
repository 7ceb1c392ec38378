import type { operations } from '~/api/schema'

export type Kind = '' | 'weight' | 'gradient' | 'activation'

/** What the rows of the tree are narrowed down to, beside the graph. */
export interface Filter {
  name: string
  type: string
  kind: Kind
  /** A part of a line of the stack; `net.py:49` is that line, and none of those from 490 on. */
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

/** The server writes a line as `file:line  code`; the end of a long path is what tells it from others. */
export function stackText(line: string): string {
  return (/:\d+$/.test(line) ? `${line}  ` : line).slice(-LONGEST_STACK)
}

/** `net.py:49` for `/home/me/net.py:49`. */
export function shortLine(line: string): string {
  return line.slice(line.lastIndexOf('/') + 1)
}
