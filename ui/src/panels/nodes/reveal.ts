import type { QueryClient } from '@tanstack/react-query'
import type { NodeRecord } from '~/api/types'
import { scopeOf } from './found'
import { treePage, type TreeView } from './pages'
import { entryKey, isBranch, PAGE, rowKey, scopesTo } from './rows'
import { useTreeState } from './treeState'

/** Have the page read that lists something in a scope. */
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
      if (number > 0) useTreeState.getState().want(name)
      return
    }
    if ((number + 1) * PAGE >= page.total) return
  }
}

/** The key of the row of a node. */
export function recordKey(graph: string, { name, kind, apart, graphs }: NodeRecord): string {
  return entryKey(graph, { path: name, kind, apart, graphs })
}

let revealed = 0

/** Open the scopes around a node, and scroll to it; unless meanwhile another one is to be revealed. */
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
    around.map((one) => rowKey(graph, one, true)),
    true,
  )
  tree.set({ target: key, cursor: key })
}

/** Open a scope, and as long as there is only one scope below, that one. */
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

// Each scope is a request and its rows are all kept; whoever wants more opens the inner ones.
const MOST_OPENED = 200

/** Open a scope with all below, the outer ones first, as far as that can be done at once. */
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
