import { keepPreviousData, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { notifications } from '@mantine/notifications'
import { useView } from '~/state/store'
import { change, get } from './client'
import type {
  Command,
  Session,
  TreePage,
  TensorRecord,
  HitPage,
  Watchpoint,
  NodeRecord,
  Origin,
} from './types'

/**
 * Keys of everything that is read. All that belongs to a session begins with ['session', id], so that an event can
 * have the right part of it read anew (`events.ts`):
 * 'record' the session, 'graphs' what only a new graph changes, 'step' what another step changes, 'watchpoints' what
 * edits of watchpoints change, 'hits' what a check changes.
 */
export const keys = {
  server: ['server'] as const,
  sessions: ['sessions'] as const,
  dumps: ['dumps'] as const,
  session: (id: string) => ['session', id] as const,
  record: (id: string) => ['session', id, 'record'] as const,
  graphs: (id: string, ...more: unknown[]) => ['session', id, 'graphs', ...more] as const,
  step: (id: string, ...more: unknown[]) => ['session', id, 'step', ...more] as const,
  watchpoints: (id: string, ...more: unknown[]) => ['session', id, 'watchpoints', ...more] as const,
  hits: (id: string, ...more: unknown[]) => ['session', id, 'hits', ...more] as const,
}

export const path = (id: string, rest = '') => `sessions/${encodeURIComponent(id)}${rest}`

/** The session that is open; undefined while it is read, or when none is open. */
export function useSession() {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: keys.record(run),
    queryFn: ({ signal }) => get<Session>(path(run), {}, signal),
    enabled: run !== '',
  })
}

export function useHits(
  query: {
    rank?: number
    graph?: string
    watchpoint?: number
    focus?: string
    offset?: number
    limit?: number
  } = {},
) {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: keys.hits(run, 'list', query),
    queryFn: ({ signal }) => get<HitPage>(path(run, '/hits'), query, signal),
    enabled: run !== '',
    placeholderData: keepPreviousData,
  })
}

export function useOrigins() {
  const run = useView((view) => view.run)
  const { data: session } = useSession()
  return useQuery({
    queryKey: keys.hits(run, 'origins', session?.step),
    queryFn: ({ signal }) => get<Origin[]>(path(run, '/origins'), {}, signal),
    enabled: session?.capabilities.has_origin === true && session.hits > 0,
  })
}

export function useWatchpoints() {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: keys.watchpoints(run, 'list'),
    queryFn: ({ signal }) => get<Watchpoint[]>(path(run, '/watchpoints'), {}, signal),
    enabled: run !== '',
  })
}

/** The selected node with all that its graph says of it. */
export function useNode() {
  const { run, node } = useView()
  return useQuery({
    queryKey: keys.graphs(run, 'node', node),
    queryFn: ({ signal }) =>
      get<NodeRecord>(path(run, '/node'), { name: node?.name, rank: node?.rank, graph: node?.graph }, signal),
    enabled: run !== '' && node !== null,
  })
}

/** The inputs and outputs of the selected node at the step that is shown. */
export function useNodeTensors() {
  const { run, node } = useView()
  return useQuery({
    queryKey: keys.step(run, 'tensors', node),
    queryFn: ({ signal }) =>
      get<TensorRecord[]>(
        path(run, '/tensors'),
        { node: node?.name, rank: node?.rank, graph: node?.graph },
        signal,
      ),
    enabled: run !== '' && node !== null,
    placeholderData: keepPreviousData,
  })
}

export function useTree(scope: string, options: { offset?: number; limit?: number; enabled?: boolean } = {}) {
  const { run, rank, graph, watchpoint } = useView()
  const { enabled = true, offset = 0, limit = 500 } = options
  return useQuery({
    queryKey: keys.watchpoints(run, 'tree', rank, graph, scope, watchpoint, offset, limit),
    queryFn: ({ signal }) =>
      get<TreePage>(path(run, '/tree'), { rank, graph, scope, watchpoint, offset, limit }, signal),
    enabled: enabled && run !== '',
    placeholderData: keepPreviousData,
  })
}

/** Send a command; what the server says against it is shown as a notification. */
export function useCommand() {
  const run = useView((view) => view.run)
  const client = useQueryClient()
  return useMutation({
    mutationFn: (command: Partial<Command> & Pick<Command, 'action'>) =>
      change<Session>('POST', path(run, '/command'), command),
    onSuccess: (session) => client.setQueryData(keys.record(run), session),
    onError: (error) => notifications.show({ color: 'red', message: error.message }),
  })
}
