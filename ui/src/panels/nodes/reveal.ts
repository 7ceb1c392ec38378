import type { QueryClient } from '@tanstack/react-query'
import type { NodeRecord } from '~/api/types'
import { scopeOf } from './searchRows'
import { treePage, type TreeView } from './pages'
import { entryKey, isBranch, PAGE, rowKey, scopesTo } from './rows'
import { useTreeState } from './treeState'

/** Load the page that lists a path in a scope. */
async function find(
  client: QueryClient,
  view: TreeView,
  graph: string,
  scope: string,
  path: string,
  branch: boolean,
): Promise<void> {
  for (let number = 0; ; number += 1) {
    const name = { graph, scope, number }
    const page = await client.query(treePage(view, name))
    if (page.entries.some((entry) => entry.path === path && isBranch(entry) === branch)) {
      if (number > 0) useTreeState.getState().requestPage(name)
      return
    }
    if ((number + 1) * PAGE >= page.total) return
  }
}

/** Return the key of a node's row. */
export function recordKey(graph: string, { name, kind, apart, graphs }: NodeRecord): string {
  return entryKey(graph, { path: name, kind, apart, graphs })
}

let revealed = 0

/** Open the scopes around a node and scroll to it, unless another node is revealed meanwhile. */
export async function reveal(
  client: QueryClient,
  view: TreeView,
  graph: string,
  node: NodeRecord,
): Promise<void> {
  revealed += 1
  const turn = revealed
  const scope = node.kind === 'operator' ? node.scope : scopeOf({ path: node.name, kind: node.kind })
  const around = ['', ...scopesTo(scope)]
  for (const [index, inner] of around.entries()) {
    const next = around[index + 1]
    await find(client, view, graph, inner, next ?? node.name, next !== undefined)
  }
  if (turn !== revealed) return
  const tree = useTreeState.getState()
  const key = recordKey(graph, node)
  tree.setOpen(
    around.map((path) => rowKey(graph, path, true)),
    true,
  )
  tree.set({ target: key, cursor: key })
}

/** Open a scope, and also the scopes below as long as each contains only one scope. */
export async function openChain(
  client: QueryClient,
  view: TreeView,
  graph: string,
  scope: string,
): Promise<void> {
  let path = scope
  for (;;) {
    useTreeState.getState().setOpen([rowKey(graph, path, true)], true)
    const page = await client.query(treePage(view, { graph, scope: path, number: 0 }))
    const [only] = page.entries
    if (page.total !== 1 || only === undefined || !isBranch(only)) return
    path = only.path
  }
}

// Each scope costs a request, and its rows are kept. Users can open further scopes one by one.
const MOST_OPENED = 200

/** Open a scope and the scopes below, outer ones first, up to a limit. */
export async function openBelow(
  client: QueryClient,
  view: TreeView,
  graph: string,
  scope: string,
): Promise<void> {
  let level = [scope]
  let opened = 0
  while (level.length > 0 && opened < MOST_OPENED) {
    const now = level.slice(0, MOST_OPENED - opened)
    opened += now.length
    useTreeState.getState().setOpen(
      now.map((path) => rowKey(graph, path, true)),
      true,
    )
    const pages = await Promise.all(
      now.map((path) => client.query(treePage(view, { graph, scope: path, number: 0 }))),
    )
    level = pages.flatMap((page) => page.entries.filter(isBranch).map((entry) => entry.path))
  }
}
