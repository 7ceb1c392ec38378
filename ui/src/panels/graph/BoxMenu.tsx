import { Menu } from '@mantine/core'
import {
  IconArrowDown,
  IconArrowUp,
  IconChevronDown,
  IconCopy,
  IconEyePlus,
  IconPlayerTrackNext,
  IconTable,
} from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useCommand, useSession } from '~/api/queries'
import { watchNode } from '~/panels/watchpoints/watchNode'
import { useView } from '~/state/store'
import { useMarks } from './marks'
import type { Box, Wire } from './picture'
import { reach, type Direction } from './reach'
import { graphTexts } from './texts'
import { tell } from '~/state/messages'

/** The position on the page where the menu opens, and its box. */
export interface MenuPosition {
  x: number
  y: number
  box: Box
}

interface Props {
  position: MenuPosition | null
  close: () => void
  rank: number
  graph: string
  wires: readonly Wire[]
  toggle: (box: Box) => void
}

/** The context menu of a box; unavailable entries say why. */
export function BoxMenu({ position, close, rank, graph, wires, toggle }: Props) {
  const { t } = useTranslation(graphTexts)
  const { data: session } = useSession()
  const openTensor = useView((view) => view.openTensor)
  const command = useCommand()
  if (!position) return null
  const { box } = position
  const isNode = box.kind !== 'scope' && box.kind !== 'cluster'
  const address = isNode ? `${rank}/${graph}/${box.path}:0` : `${rank}/${graph}/${box.path}`
  const runNot =
    box.kind !== 'operator'
      ? t('runToOnlyOperators')
      : session?.capabilities.can_run_to_node
        ? undefined
        : t('runToNot')
  const watchNot =
    box.kind === 'constant' || box.path === '@constants'
      ? t('watchConstant')
      : session?.capabilities.can_edit_watchpoints
        ? undefined
        : t('watchNot')
  const show = (direction: Direction) =>
    useMarks.getState().set({ reach: { from: box.id, direction, boxes: reach(wires, box.id, direction) } })
  const copy = () => {
    void navigator.clipboard.writeText(address)
    tell(t('copied', { text: address }), 'info', 'copied')
  }
  return (
    <Menu opened onClose={close} position="bottom-start" offset={2} shadow="md" width={220} returnFocus>
      <Menu.Target>
        <span style={{ position: 'fixed', left: position.x, top: position.y, width: 1, height: 1 }} />
      </Menu.Target>
      <Menu.Dropdown data-testid="graph-menu">
        <Menu.Label className="mono" style={{ overflowWrap: 'anywhere' }}>
          {box.label}
        </Menu.Label>
        {isNode ? (
          <Menu.Item leftSection={<IconTable size={14} />} onClick={() => openTensor(address)}>
            {t('openTensor')}
          </Menu.Item>
        ) : (
          <Menu.Item leftSection={<IconChevronDown size={14} />} onClick={() => toggle(box)}>
            {box.isOpen ? t('close') : t('open')}
          </Menu.Item>
        )}
        {isNode && (
          <Menu.Item
            leftSection={<IconPlayerTrackNext size={14} />}
            disabled={runNot !== undefined}
            title={runNot}
            onClick={() => command.mutate({ action: 'run_to_node', node: box.path, graph, rank })}
          >
            {t('runTo')}
          </Menu.Item>
        )}
        {box.kind !== 'cluster' && (
          <Menu.Item
            leftSection={<IconEyePlus size={14} />}
            disabled={watchNot !== undefined}
            title={watchNot}
            onClick={() => watchNode({ path: box.path, graph })}
          >
            {t('watch')}
          </Menu.Item>
        )}
        {!box.isOpen && (
          <>
            <Menu.Divider />
            <Menu.Item leftSection={<IconArrowUp size={14} />} onClick={() => show('up')}>
              {t('upstream')}
            </Menu.Item>
            <Menu.Item leftSection={<IconArrowDown size={14} />} onClick={() => show('down')}>
              {t('downstream')}
            </Menu.Item>
          </>
        )}
        {box.kind !== 'cluster' && (
          <>
            <Menu.Divider />
            <Menu.Item leftSection={<IconCopy size={14} />} onClick={copy}>
              {t('copyAddress')}
            </Menu.Item>
          </>
        )}
      </Menu.Dropdown>
    </Menu>
  )
}
