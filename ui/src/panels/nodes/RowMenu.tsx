import { Menu } from '@mantine/core'
import { useClipboard } from '@mantine/hooks'
import {
  IconChevronDown,
  IconChevronRight,
  IconCopy,
  IconEyePlus,
  IconFoldDown,
  IconPlayerTrackNext,
  IconSitemap,
  IconTable,
} from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useCommand, useSession } from '~/api/queries'
import { watchNode } from '~/panels/watchpoints/watchNode'
import { useView } from '~/state/store'
import { graphOf, type EntryRow } from './rows'
import { nodesTexts } from './texts'

export interface RowMenuState {
  row: EntryRow
  x: number
  y: number
}

/** The context menu of a row. */
export function RowMenu(props: {
  menu: RowMenuState | null
  onClose: () => void
  onOpen: (row: EntryRow, isOpen: boolean) => void
  onOpenBelow: ((row: EntryRow) => void) | undefined
  onShow: (row: EntryRow) => void
}) {
  const { t } = useTranslation(nodesTexts)
  const { data: session } = useSession()
  const openTensor = useView((view) => view.openTensor)
  const { mutate: command } = useCommand()
  const clipboard = useClipboard()
  const { menu } = props
  if (menu === null) return null
  const { row, x, y } = menu
  const { entry, rank } = row
  const graph = graphOf(row.graph, entry)
  const canStop = session?.capabilities.can_run_to_node === true && session.state === 'paused'
  const canWatch = session?.capabilities.can_edit_watchpoints === true
  const copy = (
    <Menu.Item leftSection={<IconCopy size={14} />} onClick={() => clipboard.copy(entry.path)}>
      {t('menu.copy')}
    </Menu.Item>
  )
  const watch = (
    <Menu.Item
      leftSection={<IconEyePlus size={14} />}
      disabled={!canWatch || entry.kind === 'constant' || entry.kind === 'constants'}
      title={canWatch ? undefined : t('notNow')}
      onClick={() => watchNode({ path: entry.path, graph })}
    >
      {t('menu.watchpoint')}
    </Menu.Item>
  )
  return (
    <Menu opened onClose={props.onClose} position="bottom-start" offset={0} withinPortal shadow="md">
      <Menu.Target>
        <div style={{ position: 'fixed', left: x, top: y, width: 0, height: 0 }} />
      </Menu.Target>
      <Menu.Dropdown aria-label={t('menu.label', { name: entry.label })}>
        {row.isOpen === null ? (
          <>
            <Menu.Item leftSection={<IconSitemap size={14} />} onClick={() => props.onShow(row)}>
              {t('menu.graph')}
            </Menu.Item>
            <Menu.Item
              leftSection={<IconTable size={14} />}
              disabled={entry.kind === 'constant'}
              onClick={() => openTensor(`${rank}/${entry.graph}/${entry.path}:0`)}
            >
              {t('menu.tensor')}
            </Menu.Item>
            {entry.kind === 'operator' && (
              <Menu.Item
                leftSection={<IconPlayerTrackNext size={14} />}
                disabled={!canStop}
                title={canStop ? undefined : t('menu.cannotRunHere')}
                onClick={() => command({ action: 'run_to_node', node: entry.path, graph, rank })}
              >
                {t('menu.runHere')}
              </Menu.Item>
            )}
            {watch}
            {copy}
          </>
        ) : (
          <>
            <Menu.Item
              leftSection={row.isOpen ? <IconChevronDown size={14} /> : <IconChevronRight size={14} />}
              onClick={() => props.onOpen(row, !row.isOpen)}
            >
              {t(row.isOpen ? 'menu.close' : 'menu.open')}
            </Menu.Item>
            {props.onOpenBelow && (
              <Menu.Item leftSection={<IconFoldDown size={14} />} onClick={() => props.onOpenBelow?.(row)}>
                {t('menu.openBelow')}
              </Menu.Item>
            )}
            {watch}
            {entry.kind === 'scope' && copy}
          </>
        )}
      </Menu.Dropdown>
    </Menu>
  )
}
