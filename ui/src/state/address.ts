import { emptyView, useView, type MainTab, type View } from './store'

/** What the address bar says of a view: run, rank, graph, node, tab, tensors. */
export function toQuery(view: View): string {
  const query = new URLSearchParams()
  if (view.run) {
    query.set('run', view.run)
    if (view.rank) query.set('rank', String(view.rank))
    if (view.graph) query.set('graph', view.graph)
    if (view.node) {
      query.set('node', view.node.name)
      if (view.node.graph !== view.graph) query.set('in', view.node.graph)
    }
    for (const tensor of view.tensors) query.append('tensor', tensor)
    if (view.tab !== emptyView.tab) query.set('tab', view.tab)
  }
  return query.size ? `?${query}` : ''
}

/** The view that an address asks for; what it does not understand is left out. */
export function fromQuery(search: string): View {
  const query = new URLSearchParams(search)
  const run = query.get('run') ?? ''
  if (!run) return emptyView
  const rank = Math.max(0, Math.trunc(Number(query.get('rank') ?? 0)) || 0)
  const graph = query.get('graph') ?? ''
  const name = query.get('node')
  const tensors = query.getAll('tensor').slice(0, 8)
  const asked = query.get('tab') ?? (tensors.length ? `tensor:${tensors.at(-1) ?? ''}` : emptyView.tab)
  const tab: MainTab = isTab(asked, tensors) ? asked : emptyView.tab
  const node = name ? { rank, graph: query.get('in') ?? graph, name } : null
  return { ...emptyView, run, rank, graph, node, tensors, tab }
}

function isTab(text: string, tensors: string[]): text is MainTab {
  const isTensor = text.startsWith('tensor:') && tensors.includes(text.slice('tensor:'.length))
  return isTensor || ['overview', 'graph', 'tensors'].includes(text)
}

/** Keep the address bar and the view the same, with an entry in the history for each run, tab and node. */
export function followAddressBar(): () => void {
  const read = () => {
    const { left, ...view } = fromQuery(window.location.search)
    useView.setState(view.run === useView.getState().run ? view : { ...view, left })
  }
  read()
  window.addEventListener('popstate', read)
  const stop = useView.subscribe((view) => {
    const query = toQuery(view)
    if (query !== window.location.search) {
      window.history.pushState(null, '', query || window.location.pathname)
    }
  })
  return () => {
    window.removeEventListener('popstate', read)
    stop()
  }
}
