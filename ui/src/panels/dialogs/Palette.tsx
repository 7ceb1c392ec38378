import { Spotlight } from '@mantine/spotlight'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useDebouncedValue } from '@mantine/hooks'
import { IconArrowRight, IconPointFilled, IconSearch, IconTableShortcut } from '~/parts/icons'
import { useEffect, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { get } from '~/api/client'
import { keys, path } from '~/api/queries'
import type { SearchPage } from '~/api/types'
import { shortcutText } from '~/parts/shortcutText'
import { useOffered } from '~/state/actions'
import { useView } from '~/state/store'
import classes from './dialogs.module.css'
import { matchingActions, pastedAddress } from './matches'
import { chooseFirst, paletteStore } from './paletteStore'
import { dialogTexts } from './texts'

const MOST_NODES = 12

/** The command palette: finds actions and nodes by parts of their names. */
export function Palette() {
  const { t } = useTranslation(dialogTexts)
  const [query, setQuery] = useState('')
  const run = useView((view) => view.run)
  const openTensor = useView((view) => view.openTensor)
  const offered = useOffered((state) => state.actions)
  const actions = matchingActions(
    Object.values(offered).filter((action) => action.id !== 'page.palette'),
    query,
  )
  const { nodes, more, isSearching } = useMatchingNodes(query)
  const address = run ? pastedAddress(query) : null
  const listed = [
    address,
    ...nodes.map((node) => `${node.rank}/${node.graph}/${node.entry.path}`),
    ...actions.map((action) => action.id),
  ].join()
  useEffect(chooseFirst, [listed])
  return (
    <Spotlight.Root
      store={paletteStore}
      attributes={{ content: { 'aria-label': t('command') } }}
      query={query}
      onQueryChange={setQuery}
      // The action `page.palette` opens it.
      shortcut={null}
      overlayProps={{ blur: 0, backgroundOpacity: 0.35 }}
      scrollable
      maxHeight="min(460px, 60vh)"
    >
      <Spotlight.Search
        placeholder={t('palette')}
        aria-label={t('palette')}
        leftSection={<IconSearch size={16} />}
      />
      <Spotlight.ActionsList>
        {address !== null && (
          <Spotlight.ActionsGroup label={t('group.tensor')}>
            <Spotlight.Action
              leftSection={<IconTableShortcut size={15} />}
              label={t('openTensor', { address })}
              onClick={() => openTensor(address)}
            />
          </Spotlight.ActionsGroup>
        )}
        {nodes.length > 0 && (
          <Spotlight.ActionsGroup label={t('group.node')}>
            {nodes.map((node) => (
              <NodeChoice key={`${node.rank}/${node.graph}/${node.entry.path}`} match={node} />
            ))}
          </Spotlight.ActionsGroup>
        )}
        {actions.length > 0 && (
          <Spotlight.ActionsGroup label={t('command')}>
            {actions.map((action) => (
              <Spotlight.Action
                key={action.id}
                // Not `disabled`: the reason must be readable.
                aria-disabled={action.disabled !== undefined}
                className={classes['choice'] ?? ''}
                leftSection={<IconArrowRight size={15} />}
                label={action.label}
                {...(action.disabled === undefined ? {} : { description: action.disabled })}
                rightSection={action.keys && <kbd>{shortcutText(action.keys)}</kbd>}
                closeSpotlightOnTrigger={action.disabled === undefined}
                onClick={() => {
                  if (action.disabled === undefined) action.run()
                }}
              />
            ))}
          </Spotlight.ActionsGroup>
        )}
        {nodes.length + actions.length === 0 && address === null && (
          <Spotlight.Empty>{t(isSearching ? 'searching' : 'nothing')}</Spotlight.Empty>
        )}
      </Spotlight.ActionsList>
      {more > 0 && <Spotlight.Footer>{t('moreNodes', { more })}</Spotlight.Footer>}
    </Spotlight.Root>
  )
}

function NodeChoice({ match }: { match: SearchPage['nodes'][number] }) {
  const selectNode = useView((view) => view.selectNode)
  const { rank, graph, entry } = match
  return (
    <Spotlight.Action
      className={classes['choice'] ?? ''}
      data-testid="palette-node"
      leftSection={<IconPointFilled size={15} />}
      label={entry.path.split('/').at(-1) ?? entry.path}
      description={entry.apart ? `${graph} · ${entry.path}` : entry.path}
      rightSection={<span>{entry.type}</span>}
      onClick={() => {
        selectNode({ rank, graph: entry.apart ? graph : '', name: entry.path })
        useView.getState().set({ left: 'nodes' })
      }}
    />
  )
}

function useMatchingNodes(query: string) {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const [searched] = useDebouncedValue(query.trim(), 120)
  const isSearched = run !== '' && searched.length >= 2
  const { data, isFetching } = useQuery({
    queryKey: keys.graphs(run, 'palette', rank, searched),
    queryFn: ({ signal }) =>
      get<SearchPage>(path(run, '/nodes'), { rank, name: searched, limit: MOST_NODES }, signal),
    enabled: isSearched,
    placeholderData: keepPreviousData,
  })
  const nodes = isSearched ? (data?.nodes ?? []) : []
  return { nodes, more: isSearched && data ? data.total - nodes.length : 0, isSearching: isFetching }
}
