import { Skeleton, Tabs } from '@mantine/core'
import { IconX } from '~/parts/icons'
import { lazy, Suspense, type ComponentType } from 'react'
import { useTranslation } from 'react-i18next'
import { Group, Panel, Separator, useDefaultLayout } from 'react-resizable-panels'
import { CompareActions } from './panels/compare/useCompareActions'
import { Hits } from './panels/hits'
import { Inspector } from './panels/inspector'
import { Nodes } from './panels/nodes'
import { FindingsStrip } from './panels/findings/Strip'
import { OriginBanner } from './panels/origin'
import { Sources } from './panels/sources'
import { TABS } from './panels/tabs'
import { Timeline } from './panels/timeline'
import { Watchpoints } from './panels/watchpoints'
import { useHits, useSession } from './api/queries'
import { useView, type LeftTab, type MainTab } from './state/store'
import { frameTexts } from './texts'

const contents = TABS.map(({ id, load }) => ({ id, Content: lazy<ComponentType>(load) }))
const Tensor = lazy(() => import('./panels/tensor'))

/** One run: nodes, hits and sources on the left, tabs in the middle, the inspector on the right. */
export function Workspace() {
  const columns = useKeptLayout('columns')
  const rows = useKeptLayout('rows')
  return (
    <>
      <CompareActions />
      <Group orientation="horizontal" className="workspace" {...columns}>
        <Panel id="left" defaultSize="22%" minSize="200px" maxSize="40%">
          <Left />
        </Panel>
        <Separator className="separator upright" />
        <Panel id="middle" minSize="420px">
          <Group orientation="vertical" {...rows}>
            <Panel id="tabs" minSize="200px">
              <Middle />
            </Panel>
            <Separator className="separator level" />
            <Panel id="timeline" defaultSize="150px" minSize="80px" maxSize="50%">
              <Timeline />
            </Panel>
          </Group>
        </Panel>
        <Separator className="separator upright" />
        <Panel id="inspector" defaultSize="24%" minSize="240px" maxSize="40%">
          <Inspector />
        </Panel>
      </Group>
    </>
  )
}

/** Restore the sizes that the user last set. */
function useKeptLayout(name: string) {
  const { defaultLayout, onLayoutChanged } = useDefaultLayout({
    id: `tensight.${name}`,
    onlySaveAfterUserInteractions: true,
  })
  return { defaultLayout, onLayoutChanged }
}

function Left() {
  const { t } = useTranslation(frameTexts)
  const left = useView((view) => view.left)
  const set = useView((view) => view.set)
  const { data: hits } = useHits({ limit: 1 })
  const rows = useKeptLayout('left')
  return (
    <Group orientation="vertical" {...rows}>
      <Panel id="lists" minSize="160px">
        <Tabs
          value={left}
          onChange={(tab) => set({ left: tab as LeftTab })}
          className="fill"
          keepMounted={false}
        >
          <Tabs.List grow>
            <Tabs.Tab value="nodes">{t('nodes')}</Tabs.Tab>
            <Tabs.Tab value="hits" data-testid="tab-hits">
              {hits?.tensors ? `${t('hits')} (${hits.tensors})` : t('hits')}
            </Tabs.Tab>
            <Tabs.Tab value="sources">{t('sources')}</Tabs.Tab>
          </Tabs.List>
          <Tabs.Panel value="nodes" className="fill">
            <Nodes />
          </Tabs.Panel>
          <Tabs.Panel value="hits" className="fill">
            <Hits />
          </Tabs.Panel>
          <Tabs.Panel value="sources" className="fill">
            <Sources />
          </Tabs.Panel>
        </Tabs>
      </Panel>
      <Separator className="separator level" />
      <Panel id="watchpoints" defaultSize="32%" minSize="96px">
        <Watchpoints />
      </Panel>
    </Group>
  )
}

function Middle() {
  const { t } = useTranslation(frameTexts)
  const tab = useView((view) => view.tab)
  const tensors = useView((view) => view.tensors)
  const set = useView((view) => view.set)
  const closeTensor = useView((view) => view.closeTensor)
  const findings = useSession().data?.findings ?? 0
  return (
    <Tabs
      value={tab}
      onChange={(value) => set({ tab: value as MainTab })}
      className="fill"
      keepMounted={false}
    >
      <Tabs.List style={{ flexWrap: 'nowrap', overflowX: 'auto', flexShrink: 0 }}>
        {TABS.map(({ id }) => (
          <Tabs.Tab key={id} value={id} data-testid={`tab-${id}`}>
            {id === 'findings' && findings > 0 ? `${t('tabs.findings')} (${findings})` : t(`tabs.${id}`)}
          </Tabs.Tab>
        ))}
        {tensors.map((address) => (
          // A tab list may contain only tabs, so the cross is part of its tab; with the keyboard it is Delete.
          <Tabs.Tab
            key={address}
            value={`tensor:${address}`}
            title={address}
            className="mono"
            aria-keyshortcuts="Delete"
            onKeyDown={(event) => {
              if (event.key === 'Delete') closeTensor(address)
            }}
            onAuxClick={(event) => {
              if (event.button === 1) closeTensor(address)
            }}
            rightSection={
              <span
                aria-hidden
                className="cross"
                title={t('close', { tensor: address })}
                data-testid="close-tensor"
                onClick={(event) => {
                  event.stopPropagation()
                  closeTensor(address)
                }}
              >
                <IconX size={12} />
              </span>
            }
          >
            {address.split('/').at(-1)}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      <FindingsStrip />
      <OriginBanner />
      <Suspense fallback={<Skeleton m="sm" style={{ flex: 1 }} />}>
        {contents.map(({ id, Content }) => (
          <Tabs.Panel key={id} value={id} className="fill">
            <Content />
          </Tabs.Panel>
        ))}
        {tensors.map((address) => (
          <Tabs.Panel key={address} value={`tensor:${address}`} className="fill">
            <Tensor address={address} />
          </Tabs.Panel>
        ))}
      </Suspense>
    </Tabs>
  )
}
