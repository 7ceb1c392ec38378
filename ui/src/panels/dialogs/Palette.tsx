import { Spotlight } from '@mantine/spotlight'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useDebouncedValue } from '@mantine/hooks'
import { IconArrowRight, IconPointFilled, IconSearch, IconTableShortcut } from '@tabler/icons-react'
import { useEffect, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { get } from '~/api/client'
import { keys, path } from '~/api/queries'
import type { SearchPage } from '~/api/types'
import { shortcutText } from '~/parts/shortcutText'
import { useOffered } from '~/state/actions'
import { useView } from '~/state/store'
import classes from './dialogs.module.css'
import { foundActions, pastedAddress } from './found'
import { chooseFirst, paletteStore } from './paletteStore'
import { dialogTexts } from './texts'

const MOST_NODES = 12

/** Everything that can be done, and every node, by typing a part of its name. */
export function Palette() {
  const { t } = useTranslation(dialogTexts)
  const [query, setQuery] = useState('')
  const run = useView((view) => view.run)
  const openTensor = useView((view) => view.openTensor)
  const offered = useOffered((state) => state.actions)
  const actions = foundActions(
    Object.values(offered).filter((one) => one.id !== 'page.palette'),
    query,
  )
  const { nodes, more, isSearching } = useFoundNodes(query)
  const address = run ? pastedAddress(query) : null
  const listed = [
    address,
    ...nodes.map((found) => `${found.rank}/${found.graph}/${found.entry.path}`),
    ...actions.map((one) => one.id),
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
            {nodes.map((found) => (
              <NodeChoice key={`${found.rank}/${found.graph}/${found.entry.path}`} found={found} />
            ))}
          </Spotlight.ActionsGroup>
        )}
        {actions.length > 0 && (
          <Spotlight.ActionsGroup label={t('command')}>
            {actions.map((action) => (
              <Spotlight.Action
                key={action.id}
                // Not `disabled`: the reason is to be read.
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

function NodeChoice({ found }: { found: SearchPage['nodes'][number] }) {
  const selectNode = useView((view) => view.selectNode)
  const { rank, graph, entry } = found
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

function useFoundNodes(query: string) {
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
